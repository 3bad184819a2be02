// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side of the order: which steps must have returned before another one is called.

use crate::program::Object;

/// How a step uses an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Many threads may do it at once.
    Shared,
    /// It changes what other calls on the object mean, so its place among them matters. "The
    /// application is responsible for ensuring that multiple Host threads do not access the same
    /// command list simultaneously", and a CB event is state of the host program.
    Exclusive,
}

#[derive(Clone)]
struct Users {
    object: Object,
    exclusive: Option<usize>,
    shared: Vec<usize>,
}

/// The steps so far, by thread and by object.
#[derive(Clone, Default)]
pub struct HostOrder {
    steps: usize,
    /// The last step of each thread.
    threads: Vec<Option<usize>>,
    join: Option<usize>,
    objects: Vec<Users>,
}

impl HostOrder {
    /// Adds the next step; answers the earlier ones that must have returned, of its own thread
    /// and of others.
    pub fn enter(&mut self, thread: usize, uses: &[(Object, Use)], join: bool) -> Vec<usize> {
        let step = self.steps;
        self.steps += 1;
        if self.threads.len() <= thread {
            self.threads.resize(thread + 1, None);
        }
        let mut after: Vec<usize> = if join {
            (0..step).collect()
        } else {
            self.threads[thread].into_iter().chain(self.join).collect()
        };
        for &(object, kind) in uses {
            after.extend(self.touch(step, object, kind));
        }
        self.threads[thread] = Some(step);
        if join {
            self.join = Some(step);
        }
        after.sort_unstable();
        after.dedup();
        after.retain(|&earlier| earlier != step);
        after
    }

    fn touch(&mut self, step: usize, object: Object, kind: Use) -> Vec<usize> {
        let at = self.objects.iter().position(|users| users.object == object);
        let at = at.unwrap_or_else(|| {
            self.objects.push(Users { object, exclusive: None, shared: Vec::new() });
            self.objects.len() - 1
        });
        let users = &mut self.objects[at];
        match kind {
            Use::Shared => {
                users.shared.push(step);
                users.exclusive.into_iter().collect()
            }
            Use::Exclusive => {
                let earlier = users.exclusive.replace(step);
                users.shared.drain(..).chain(earlier).collect()
            }
        }
    }
}
