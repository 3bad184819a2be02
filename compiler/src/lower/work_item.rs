// SPDX-License-Identifier: MIT OR Apache-2.0
//! A work-item's queries for its place, computed from the group's context.

use super::body::Body;
use super::context::{
    GLOBAL_OFFSET, GLOBAL_SIZE, GROUP, GROUP_SIZE, NUM_GROUPS, WORK_DIM, load_launch, local_size,
};
use super::unit::LowerError;
use crate::ir::WorkItemQuery;

impl Body<'_, '_> {
    /// The result of a query, as a value that is computed once at the start of the function.
    pub(super) fn work_item(
        &mut self,
        query: WorkItemQuery,
        dimension: u8,
    ) -> Result<String, LowerError> {
        if let Some(name) = self.queries.get(&(query, dimension)) {
            return Ok(name.clone());
        }
        let name = self.answer(query, dimension)?;
        self.queries.insert((query, dimension), name.clone());
        Ok(name)
    }

    fn answer(&mut self, query: WorkItemQuery, dimension: u8) -> Result<String, LowerError> {
        use WorkItemQuery as Q;
        if dimension > 2 {
            return Err(LowerError::Unsupported(format!("dimension {dimension}")));
        }
        let d = u32::from(dimension);
        let id = ["%lx", "%ly", "%lz"][usize::from(dimension)];
        Ok(match query {
            Q::LocalId => id.into(),
            Q::GroupId => self.context_word(true, GROUP + 4 * d),
            Q::NumGroups => self.context_word(false, NUM_GROUPS + 4 * d),
            Q::EnqueuedLocalSize => self.context_word(false, GROUP_SIZE + 4 * d),
            Q::GlobalOffset => self.launch_long(GLOBAL_OFFSET + 8 * d),
            Q::GlobalSize => self.launch_long(GLOBAL_SIZE + 8 * d),
            Q::WorkDim => self.launch_word(WORK_DIM),
            Q::LocalSize => {
                let name = self.temp();
                let text = local_size(&name, dimension, self.unit.exact);
                self.prelude += &text;
                self.unit.declare("i64", "llvm.umin.i64", "i64, i64");
                name
            }
            Q::GlobalId => {
                let relative = self.relative_id(dimension)?;
                let offset = self.work_item(Q::GlobalOffset, dimension)?;
                self.prelude_def(&format!("add i64 {offset}, {relative}"))
            }
            Q::GlobalLinearId => self.linear(Body::relative_id, Q::GlobalSize)?,
            Q::LocalLinearId => {
                self.linear(|body, d| body.work_item(Q::LocalId, d), Q::LocalSize)?
            }
            Q::SubgroupMaxSize => self.unit.subgroup_size.to_string(),
            Q::SubgroupLocalId => {
                let linear = self.linear_id32()?;
                let mask = self.unit.subgroup_size - 1;
                self.prelude_def(&format!("and i32 {linear}, {mask}"))
            }
            Q::SubgroupId => {
                let linear = self.linear_id32()?;
                self.prelude_def(&format!("lshr i32 {linear}, {}", self.unit.subgroup_shift()))
            }
            Q::SubgroupSize => {
                let id = self.work_item(Q::SubgroupId, 0)?;
                let items = self.volume(Q::LocalSize)?;
                let full = self.unit.subgroup_size;
                let shift = self.unit.subgroup_shift();
                let first = self.prelude_def(&format!("shl i32 {id}, {shift}"));
                let left = self.prelude_def(&format!("sub i32 {items}, {first}"));
                self.unit.declare("i32", "llvm.umin.i32", "i32, i32");
                self.prelude_def(&format!("call i32 @llvm.umin.i32(i32 {left}, i32 {full})"))
            }
            Q::NumSubgroups => self.subgroups(Q::LocalSize)?,
            Q::NumEnqueuedSubgroups => self.subgroups(Q::EnqueuedLocalSize)?,
        })
    }

    /// The global id without the global offset.
    fn relative_id(&mut self, dimension: u8) -> Result<String, LowerError> {
        let group = self.work_item(WorkItemQuery::GroupId, dimension)?;
        let size = self.work_item(WorkItemQuery::EnqueuedLocalSize, dimension)?;
        let local = self.work_item(WorkItemQuery::LocalId, dimension)?;
        let first = self.prelude_def(&format!("mul nuw nsw i64 {group}, {size}"));
        Ok(self.prelude_def(&format!("add nuw nsw i64 {first}, {local}")))
    }

    /// `(z * size_y + y) * size_x + x`.
    fn linear(
        &mut self,
        id: impl Fn(&mut Self, u8) -> Result<String, LowerError>,
        size: WorkItemQuery,
    ) -> Result<String, LowerError> {
        let mut sum = id(self, 2)?;
        for dimension in [1, 0] {
            let size = self.work_item(size, dimension)?;
            let product = self.prelude_def(&format!("mul i64 {sum}, {size}"));
            let id = id(self, dimension)?;
            sum = self.prelude_def(&format!("add i64 {product}, {id}"));
        }
        Ok(sum)
    }

    /// The linear local id in 32 bits.
    fn linear_id32(&mut self) -> Result<String, LowerError> {
        let linear = self.work_item(WorkItemQuery::LocalLinearId, 0)?;
        Ok(self.prelude_def(&format!("trunc i64 {linear} to i32")))
    }

    /// The sub-groups of a group of some size.
    fn subgroups(&mut self, size: WorkItemQuery) -> Result<String, LowerError> {
        let items = self.volume(size)?;
        let last = self.unit.subgroup_size - 1;
        let rounded = self.prelude_def(&format!("add i32 {items}, {last}"));
        Ok(self.prelude_def(&format!("lshr i32 {rounded}, {}", self.unit.subgroup_shift())))
    }

    /// The product of a size over the dimensions, in 32 bits.
    fn volume(&mut self, size: WorkItemQuery) -> Result<String, LowerError> {
        let mut product = self.work_item(size, 0)?;
        for dimension in [1, 2] {
            let size = self.work_item(size, dimension)?;
            product = self.prelude_def(&format!("mul i64 {product}, {size}"));
        }
        Ok(self.prelude_def(&format!("trunc i64 {product} to i32")))
    }

    /// A 32-bit number of the context or of the launch, as 64 bits.
    fn context_word(&mut self, context: bool, offset: u32) -> String {
        let word = if context {
            let at =
                self.prelude_def(&format!("getelementptr inbounds i8, ptr %ctx, i64 {offset}"));
            self.prelude_def(&format!("load i32, ptr {at}, align 4, !invariant.load !0"))
        } else {
            self.launch_word(offset)
        };
        self.prelude_def(&format!("zext i32 {word} to i64"))
    }

    fn launch_word(&mut self, offset: u32) -> String {
        let at = self.launch_at(offset);
        self.prelude_def(&format!("load i32, ptr {at}, align 4, !invariant.load !0"))
    }

    fn launch_long(&mut self, offset: u32) -> String {
        let at = self.launch_at(offset);
        self.prelude_def(&format!("load i64, ptr {at}, align 8, !invariant.load !0"))
    }

    fn launch_at(&mut self, offset: u32) -> String {
        let launch = self.temp();
        self.prelude += &load_launch(&launch);
        self.prelude_def(&format!("getelementptr inbounds i8, ptr {launch}, i64 {offset}"))
    }
}
