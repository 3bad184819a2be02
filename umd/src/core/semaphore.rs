// SPDX-License-Identifier: MIT OR Apache-2.0
//! External semaphores: handles for semaphores of other drivers.

use std::sync::Arc;

use crate::handle::{Kind, object};
use crate::sync::semaphore::Semaphore;

object!(ze_external_semaphore_ext_handle_t => Arc<Semaphore>, Kind::Semaphore);
