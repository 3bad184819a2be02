// SPDX-License-Identifier: GPL-2.0
//! VM_BIND with fences: changes that wait for points of sync objects, and points that are told when a change is
//! made.

use kernel::drm;
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};
use tally_uapi::ioctl::BindPoint;
use zerocopy::{FromZeros, IntoBytes};

use super::bind::Change;
use super::caller::{Caller, Hardware};
use crate::account::{Charge, WAIT};
use crate::buffer::BoRef;
use crate::device::TallyDevice;
use crate::follower::Due;
use crate::raw::fence::Fence;
use crate::raw::pages::PinnedWord;
use crate::raw::target::{Point, Target};
use crate::request::{Bind, Points};

/// Who is told how a change has ended.
pub(super) struct Outcome {
    word: Option<(PinnedWord, BoRef)>,
    targets: KVec<Target>,
}

impl Outcome {
    /// Stores the result, and signals the points. Called once.
    pub(super) fn tell(self, result: Result) {
        if let Some((word, _)) = &self.word {
            word.store(i64::from(result.err().map_or(0, |error| error.to_errno())) as u64);
        }
        for target in self.targets {
            target.tell();
        }
    }
}

/// The fences that a change waits for, and who is told of it.
///
/// # Errors
/// ENOENT: there is no such buffer or sync object. EINVAL: a sync object has no fence at a point yet, or a field is
/// not zero. EFAULT, EACCES, ENOMEM.
pub(super) fn read(caller: &Caller<'_>, asked: &Bind) -> Result<(KVec<Fence>, Outcome)> {
    let file = caller.drm_file;
    let mut waits = KVec::new();
    each(&asked.waits, |handle, point| {
        Ok(waits.push(Fence::of_point(file, handle, point)?, GFP_KERNEL_ACCOUNT)?)
    })?;
    let mut targets = KVec::new();
    each(&asked.signals, |handle, point| {
        let target = Target::Point(Point::new(file, handle, point)?);
        Ok(targets.push(target, GFP_KERNEL_ACCOUNT)?)
    })?;
    let word = asked.status.map(|(handle, offset)| {
        let bo = caller.lookup()(handle)?;
        if !bo.may_write(Some(caller.file().id())) {
            return Err(EACCES);
        }
        Ok((PinnedWord::new(&bo, offset)?, bo))
    });
    Ok((
        waits,
        Outcome {
            word: word.transpose()?,
            targets,
        },
    ))
}

/// Calls `f` with the handle and the point of each element of an array.
fn each(points: &Points, mut f: impl FnMut(u32, u64) -> Result) -> Result {
    let place = UserPtr::from_addr(usize::try_from(points.address).map_err(|_| EFAULT)?);
    let mut reader = UserSlice::new(place, points.count * size_of::<BindPoint>()).reader();
    for _ in 0..points.count {
        let mut point = BindPoint::new_zeroed();
        reader.read_slice(point.as_mut_bytes())?;
        if point.pad != 0 {
            return Err(EINVAL);
        }
        f(point.handle, point.point)?;
    }
    Ok(())
}

/// A change that waits for fences.
struct Later {
    /// None once it was made or given up.
    change: Option<(Change, Outcome)>,
    _charge: Charge,
}

/// Makes `change` once all of `waits` have signalled.
///
/// # Errors
/// ENOSPC, ENOMEM. After an error no point is signalled.
pub(super) fn arm(
    caller: &Caller<'_>,
    waits: KVec<Fence>,
    change: Change,
    outcome: Outcome,
) -> Result {
    let file = caller.file();
    let charge = Charge::take(file.account(), WAIT)?;
    let later = Later {
        change: Some((change, outcome)),
        _charge: charge,
    };
    file.binder()
        .arm(waits, KBox::new(later, GFP_KERNEL_ACCOUNT)?, caller.dev)
}

impl Due for Later {
    fn carry_out(&mut self, _status: i32, dev: &TallyDevice<drm::Ioctl>) {
        if let Some((change, outcome)) = self.change.take() {
            outcome.tell(change.carry_out(Hardware(dev)));
        }
    }

    fn forget(&mut self) {
        if let Some((change, outcome)) = self.change.take() {
            drop(change);
            outcome.tell(Err(ECANCELED));
        }
    }
}
