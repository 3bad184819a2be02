// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that copies of a model share until one of them changes its own.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A value that is copied when it is changed, if another copy has it too.
#[derive(Clone)]
pub(super) struct Shared<T>(Rc<T>);

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Shared(Rc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}
