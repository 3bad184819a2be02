// SPDX-License-Identifier: GPL-2.0
//! Commands in order: one lane for each VM, and one for commands without a VM.
//!
//! The device takes one command of a VM at a time (`device/SPEC.md`, chapter 13). The others wait here:
//! sending never waits for the device, a VM's commands never wait for another VM's, and the age of a
//! lane's first command is the time that the device has had for it.
//!
//! A lane opens with VM_CREATE and closes with VM_DESTROY, which is its last command. So no command for a
//! VM reaches the next VM with the same id.

use kernel::prelude::*;
use kernel::sync::Arc;
use tally_uapi::firmware::{op, Command, ANSWERS};

use crate::call::{Call, Commands, Kept, Order, Place, Sent};

/// The most waiting commands of a lane, not counting those that release resources.
const MOST_WAITING: u32 = 16_384;

/// A command that could not be sent.
pub(crate) struct Unsent<K> {
    /// The reason.
    pub(crate) error: Error,
    order: Order<K>,
    keep: K,
}

impl<K: Kept> Unsent<K> {
    /// A command that could not be sent because of `error`.
    pub(crate) fn new(error: Error, order: Order<K>, keep: K) -> Self {
        Self { error, order, keep }
    }

    /// The resources that it would have kept. They must be settled without the lock of any VM.
    pub(crate) fn into_keep(self) -> K {
        self.keep
    }

    /// Like [`Self::into_keep`], with memory in which they can be kept.
    fn into_sent(self) -> (Place<K>, Sent<K>) {
        let Order { call, place } = self.order;
        (
            place,
            Sent {
                call,
                command: Command::default(),
                keep: self.keep,
                quiet: false,
            },
        )
    }
}

/// The command that the device has.
#[derive(Clone, Copy)]
struct Out {
    /// Its number on the ring.
    number: u32,
    since_ns: i64,
    /// Whether it has taken too long and was reported.
    late: bool,
}

/// The commands of a VM.
struct Lane<K> {
    open: bool,
    /// In order. The device has the first one if `out` is set.
    commands: Commands<K>,
    count: u32,
    out: Option<Out>,
}

/// Commands that were sent and not answered yet.
pub(crate) struct Lanes<K> {
    /// By slot of the answers.
    lanes: KVVec<Lane<K>>,
    /// The number of the next command, by which trees of commands are sorted.
    next: u64,
    /// Resources of commands that could not be sent; they may not be freed before the next reset.
    late: Commands<K>,
}

/// A command that was answered.
pub(crate) struct Answered<K> {
    /// The sender's side of it.
    pub(crate) call: Arc<Call<K>>,
    /// The command.
    pub(crate) command: Command,
    /// The resources that it kept.
    pub(crate) keep: K,
    /// Its number in the lane's tree.
    pub(crate) key: u64,
    /// Memory in which `keep` can be kept for a while.
    pub(crate) place: Place<K>,
}

impl<K: Kept> Lanes<K> {
    /// All lanes, closed and empty.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Self> {
        let mut lanes = KVVec::with_capacity(ANSWERS as usize, GFP_KERNEL)?;
        for slot in 0..ANSWERS {
            let lane = Lane {
                open: slot == 0,
                commands: Commands::new(),
                count: 0,
                out: None,
            };
            lanes.push(lane, GFP_KERNEL)?;
        }
        Ok(Self {
            lanes,
            next: 0,
            late: Commands::new(),
        })
    }

    /// Adds a command to the lane of its VM.
    ///
    /// # Errors
    /// ENOENT: the VM has not been created, or is ending. ENOSPC: too many commands wait already.
    pub(crate) fn add(
        &mut self,
        order: Order<K>,
        command: Command,
        keep: K,
    ) -> Result<(), Unsent<K>> {
        let refused = match self.lanes.get(command.vm as usize) {
            Some(lane) if lane.open == (command.opcode == op::VM_CREATE) => Some(ENOENT),
            Some(lane) if lane.count >= MOST_WAITING && !keep.sets_free() => Some(ENOSPC),
            Some(_) => None,
            None => Some(ENOENT),
        };
        if let Some(error) = refused {
            return Err(Unsent::new(error, order, keep));
        }
        let key = self.key();
        let Order { call, place } = order;
        if let Some(lane) = self.lanes.get_mut(command.vm as usize) {
            match command.opcode {
                op::VM_CREATE => lane.open = true,
                op::VM_DESTROY => lane.open = false,
                _ => {}
            }
            lane.count += 1;
            let sent = Sent {
                call,
                command,
                keep,
                quiet: false,
            };
            lane.commands.insert(place.into_node(key, sent));
        }
        Ok(())
    }

    fn key(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The first command of a lane, if the device has none of that lane. The device gets it as `number`.
    pub(crate) fn start(&mut self, slot: usize, number: u32, now_ns: i64) -> Option<Command> {
        let lane = self.lanes.get_mut(slot)?;
        if lane.out.is_some() {
            return None;
        }
        let command = lane.commands.values().next()?.command;
        lane.out = Some(Out {
            number,
            since_ns: now_ns,
            late: false,
        });
        Some(command)
    }

    /// The slots of the lanes of which the device has a command, and the command's number.
    pub(crate) fn out(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let lanes = self.lanes.iter().enumerate();
        lanes.filter_map(|(slot, lane)| Some((slot, lane.out?.number)))
    }

    /// Removes the first command of a lane, which was answered.
    pub(crate) fn finish(&mut self, slot: usize) -> Option<Answered<K>> {
        let lane = self.lanes.get_mut(slot)?;
        lane.out = None;
        let mut first = lane.commands.cursor_front_mut()?;
        let (&key, sent) = first.current_mut();
        let keep = core::mem::replace(&mut sent.keep, K::NOTHING);
        let (call, command) = (sent.call.clone(), sent.command);
        let (_, node) = first.remove_current();
        lane.count -= 1;
        Some(Answered {
            call,
            command,
            keep,
            key,
            place: node.into_reservation(),
        })
    }

    /// Whether the device has no command of a lane.
    pub(crate) fn is_idle(&self, slot: usize) -> bool {
        self.lanes.get(slot).is_some_and(|lane| lane.out.is_none())
    }

    /// A lane whose command the device has had since before `since_ns`. Each command is reported once.
    pub(crate) fn overdue(&mut self, since_ns: i64) -> Option<usize> {
        self.lanes.iter_mut().position(|lane| match &mut lane.out {
            Some(out) if !out.late && out.since_ns < since_ns => {
                out.late = true;
                true
            }
            _ => false,
        })
    }

    /// Ends the calls of a lane. The resources that they keep stay.
    pub(crate) fn end_calls(&self, slot: usize, error: Error) {
        let commands = self.lanes.get(slot).map(|lane| lane.commands.values());
        for sent in commands.into_iter().flatten() {
            let _ = sent.call.end(Err(error), K::NOTHING, true);
        }
    }

    /// Like [`Self::end_calls`], for all lanes, and closes the lanes.
    pub(crate) fn close(&mut self, error: Error) {
        for slot in 0..self.lanes.len() {
            self.end_calls(slot, error);
        }
        for (slot, lane) in self.lanes.iter_mut().enumerate() {
            lane.open = slot == 0;
        }
    }

    /// Keeps the resources of a command that was not sent.
    pub(crate) fn keep_late(&mut self, unsent: Unsent<K>) {
        let (place, sent) = unsent.into_sent();
        let key = self.key();
        self.late.insert(place.into_node(key, sent));
    }

    /// Removes the resources of one command, lane by lane in the order of sending. For a device that was reset.
    pub(crate) fn take(&mut self) -> Option<K> {
        for lane in self.lanes.iter_mut() {
            lane.out = None;
            if let Some(first) = lane.commands.cursor_front_mut() {
                lane.count -= 1;
                return Some(first.remove_current().1.to_key_value().1.keep);
            }
        }
        let first = self.late.cursor_front_mut()?;
        Some(first.remove_current().1.to_key_value().1.keep)
    }
}

#[kernel::macros::kunit_tests(tally_lanes)]
mod tests {
    use tally_uapi::firmware::Answer;

    use super::*;

    impl Kept for () {
        type Owner = ();
        const NOTHING: Self = ();

        fn answered(&self, (): &(), _: &Answer) -> bool {
            true
        }

        fn sets_free(&self) -> bool {
            false
        }

        fn settle(self, (): &(), _: bool) {}
    }

    fn add(lanes: &mut Lanes<()>, opcode: u32, vm: u32) -> Result<Arc<Call<()>>> {
        let order = Order::new()?;
        let call = order.call.clone();
        let command = Command {
            opcode,
            vm,
            ..Command::default()
        };
        lanes
            .add(order, command, ())
            .map_err(|unsent| unsent.error)?;
        Ok(call)
    }

    /// "The device takes one command of a VM at a time", "in their order"
    #[test]
    fn a_vm_has_one_command_out() -> Result {
        let mut lanes = Lanes::new()?;
        add(&mut lanes, op::VM_CREATE, 3)?;
        add(&mut lanes, op::VM_MAP, 3)?;
        add(&mut lanes, op::VM_CREATE, 4)?;
        assert_eq!(
            lanes.start(3, 0, 0).map(|it| it.opcode),
            Some(op::VM_CREATE)
        );
        assert!(lanes.start(3, 1, 0).is_none());
        assert_eq!(lanes.start(4, 1, 0).map(|it| it.vm), Some(4));
        assert!(lanes.out().eq([(3, 0), (4, 1)]));
        assert_eq!(
            lanes.finish(3).map(|it| it.command.opcode),
            Some(op::VM_CREATE)
        );
        assert_eq!(lanes.start(3, 2, 0).map(|it| it.opcode), Some(op::VM_MAP));
        Ok(())
    }

    /// "A lane opens with VM_CREATE and closes with VM_DESTROY, which is its last command."
    #[test]
    fn nothing_comes_before_create_or_after_destroy() -> Result {
        let mut lanes = Lanes::new()?;
        assert_eq!(add(&mut lanes, op::QUEUE_CREATE, 1).err(), Some(ENOENT));
        assert_eq!(add(&mut lanes, op::NOP, ANSWERS).err(), Some(ENOENT));
        add(&mut lanes, op::VM_CREATE, 1)?;
        assert_eq!(add(&mut lanes, op::VM_CREATE, 1).err(), Some(ENOENT));
        add(&mut lanes, op::QUEUE_CREATE, 1)?;
        add(&mut lanes, op::VM_DESTROY, 1)?;
        for opcode in [
            op::QUEUE_CREATE,
            op::QUEUE_DESTROY,
            op::VM_DESTROY,
            op::VM_UNMAP,
        ] {
            assert_eq!(add(&mut lanes, opcode, 1).err(), Some(ENOENT));
        }
        for opcode in [op::VM_CREATE, op::QUEUE_CREATE, op::VM_DESTROY] {
            assert_eq!(lanes.start(1, 0, 0).map(|it| it.opcode), Some(opcode));
            lanes.finish(1).ok_or(EINVAL)?;
        }
        // The id's next VM.
        add(&mut lanes, op::VM_CREATE, 1)?;
        Ok(())
    }

    /// "the age of a lane's first command is the time that the device has had for it"
    #[test]
    fn only_what_the_device_has_grows_old() -> Result {
        let mut lanes = Lanes::new()?;
        for opcode in [op::VM_CREATE, op::VM_MAP] {
            add(&mut lanes, opcode, 7)?;
        }
        // The device was not given these commands.
        assert_eq!(lanes.overdue(100), None);
        lanes.start(7, 0, 50);
        assert_eq!(
            (lanes.overdue(50), lanes.overdue(51), lanes.overdue(52)),
            (None, Some(7), None)
        );
        lanes.finish(7).ok_or(EINVAL)?;
        lanes.start(7, 1, 60);
        assert_eq!(lanes.overdue(60), None);
        Ok(())
    }

    /// A call that ended early is not ended again by its answer.
    #[test]
    fn a_call_ends_once() -> Result {
        let mut lanes = Lanes::new()?;
        let call = add(&mut lanes, op::VM_CREATE, 2)?;
        lanes.end_calls(2, EIO);
        assert!(call.end(Err(ENODEV), (), true).is_some());
        lanes.close(ENODEV);
        assert!(lanes.take().is_some() && lanes.take().is_none());
        assert_eq!(add(&mut lanes, op::VM_MAP, 2).err(), Some(ENOENT));
        Ok(())
    }
}
