// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checked places, in the form for reports.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use tally_compiler_protocol::checks::{Site, SiteKind, Sites, Space};

use crate::ir::{AddressSpace, FileId, Function, Kernel, Loc, Module};

/// The function that each instruction was in before calls were inlined.
pub(super) struct Names {
    /// The words of each function in the SPIR-V module, and its name.
    functions: Vec<(RangeInclusive<u32>, String)>,
}

impl Names {
    /// The functions that a kernel reaches.
    pub(super) fn new(module: &Module, kernel: &Kernel) -> Self {
        let words = |function: &Function| {
            let blocks = || function.blocks.iter().map(|(_, block)| block);
            let insts = blocks().flat_map(|block| &block.insts).map(|inst| inst.loc.word);
            let all = insts.chain(blocks().map(|block| block.loc.word)).chain([function.loc.word]);
            let all: Vec<u32> = all.filter(|&word| word != 0).collect();
            let first = all.iter().min().copied().unwrap_or(0);
            first..=all.into_iter().max().unwrap_or(0)
        };
        let of = |id| (words(&module.functions[id]), module.functions[id].name.clone());
        let functions = kernel.facts.functions.iter().map(|&id| of(id)).collect();
        Self { functions }
    }

    fn function(&self, word: u32) -> String {
        let found = self.functions.iter().find(|(words, _)| words.contains(&word));
        found.or(self.functions.first()).map_or(String::new(), |(_, name)| name.clone())
    }
}

/// The sites of a kernel, under construction.
pub(super) struct Table {
    names: Names,
    files: HashMap<FileId, u32>,
    sites: Sites,
}

/// The properties of a site besides its place.
pub(super) struct About {
    pub(super) kind: SiteKind,
    pub(super) size: u64,
    pub(super) space: Space,
    pub(super) object: String,
}

impl Table {
    pub(super) fn new(names: Names) -> Self {
        Self { names, files: HashMap::new(), sites: Sites::default() }
    }

    /// The number of a new site.
    pub(super) fn add(&mut self, module: &Module, loc: Loc, about: About) -> u32 {
        let About { kind, size, space, object } = about;
        let files = &mut self.sites.files;
        let file = loc.file.filter(|_| loc.line != 0).map(|id| {
            *self.files.entry(id).or_insert_with(|| {
                files.push(module.files[id].clone());
                files.len() as u32 - 1
            })
        });
        let (line, column) = if file.is_some() { (loc.line, loc.column) } else { (0, 0) };
        self.sites.sites.push(Site {
            kind,
            size: u32::try_from(size).unwrap_or(u32::MAX),
            space,
            file,
            line,
            column,
            word: loc.word,
            function: match loc.inlined {
                Some(call) => module.debug.inlined[call].name.clone(),
                None => self.names.function(loc.word),
            },
            object,
        });
        self.sites.sites.len() as u32 - 1
    }

    /// The number of bytes at a site whose states are checked; 0 if none are.
    pub(super) fn size(&self, site: u32) -> u32 {
        let site = &self.sites.sites[site as usize];
        match site.kind {
            SiteKind::Use | SiteKind::ReadUnwritten { .. } => 0,
            _ => site.size,
        }
    }

    /// Says through which parameters the kernel writes.
    pub(super) fn write_through(&mut self, parameters: impl IntoIterator<Item = u32>) {
        self.sites.written.extend(parameters);
    }

    pub(super) fn finish(self) -> Sites {
        self.sites
    }
}

/// An address space in the form for reports.
pub(super) fn space(space: AddressSpace) -> Space {
    match space {
        AddressSpace::Private => Space::Private,
        AddressSpace::Local => Space::Local,
        AddressSpace::Global => Space::Global,
        AddressSpace::Constant => Space::Constant,
        AddressSpace::Generic => Space::Generic,
    }
}
