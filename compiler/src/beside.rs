// SPDX-License-Identifier: MIT OR Apache-2.0
//! A view of a kernel for readers: its instructions, the widened form of each, and the processor's code
//! for that, side by side.
//!
//! ```text
//! word SPIR-V  value    kernel                    | widened                     | processor
//!   61 PtrAcc.. step 4   %4 = address %1 + %2 * 4  | %7 = address %1 + %3 * 4    |
//!   66 Load     varying  %5 = load %4 align 4      | %9: f32x16 = load %7        | vmovups (%rsi,%rax,4), %zmm0
//!  208 Load     varying  %9 = load %8 align 4      | ! %21: f32x16 = gather %20  | vgatherdps ...
//! ```
//!
//! Rows are matched by the word of the SPIR-V module that an instruction comes from, which the code
//! keeps as debug information ([`crate::lower::places`]).

use std::collections::HashMap;
use std::fmt::Write;

use tally_compiler_protocol::TargetCpu;

use crate::ir::{Function, Kernel, Loc, Module, Op};
use crate::llvm::{self, Level, Output};
use crate::lower::places::{Form, Kind};
use crate::widen::{self, Widened};
use crate::{lower, parse};

/// Widths of the columns: names of instructions, shapes of values, and code.
const NAME: usize = 14;
const SHAPE: usize = 10;
const CODE: usize = 60;

/// The texts for each word of the SPIR-V module.
type ByWord = HashMap<u32, Vec<String>>;

/// Builds the view of a kernel.
///
/// # Errors
/// The message of the lowering or of LLVM.
pub fn view(module: &Module, kernel: &Kernel, target: &TargetCpu) -> Result<String, String> {
    let widened = widen::widen(module, kernel, widen::lanes(kernel));
    let mut out = String::new();
    let (source, wide, form) = match &widened {
        Ok(wide) => {
            let _ = writeln!(out, "kernel {:?}, {} items at a time", kernel.name, wide.lanes);
            (&wide.source, Some(wide), Form::Vector)
        }
        Err(why) => {
            let _ = writeln!(out, "kernel {:?}, one item at a time: {why}", kernel.name);
            (&module.functions[kernel.function], None, Form::Item)
        }
    };
    let lowered = lower::lower_with_places(module, kernel, wide, Kind::Words)
        .map_err(|error| error.to_string())?;
    let code = llvm::compile(&lowered.text, lowered.work, target, Level::Full, Output::Assembly)
        .map_err(|error| error.to_string())?;
    let (code, rest) = code_by_word(&String::from_utf8_lossy(&code), form);
    let mut rows = Rows {
        out,
        wide: wide.map(widened_by_word).unwrap_or_default(),
        code,
        remarks: wide.map(remarks_by_word).unwrap_or_default(),
    };
    rows.function(module, source, wide);
    let mut out = rows.out;
    let _ = writeln!(
        out,
        "\n{rest} instructions of the processor come from no instruction of the kernel: they load \
         arguments, go over the items of a group, or serve both forms."
    );
    Ok(out)
}

/// The table under construction. The code for a word is shown once.
struct Rows {
    out: String,
    wide: ByWord,
    code: ByWord,
    remarks: ByWord,
}

impl Rows {
    fn function(&mut self, module: &Module, source: &Function, wide: Option<&Widened>) {
        self.row(["word", "SPIR-V", "value", "kernel", "widened", "processor"]);
        for (id, block) in source.blocks.iter() {
            let head = wide.map_or_else(|| format!("{id}:"), |wide| wide.block_text(id));
            let _ = writeln!(self.out, "\n{head}");
            let mut insts = block.insts.iter().peekable();
            while let Some(inst) = insts.next() {
                let shape = inst.result.zip(wide).map(|(value, wide)| wide.shape(value));
                let shape = shape.map(|shape| shape.to_string()).unwrap_or_default();
                let text = module.inst_text(source, inst);
                // An instruction of SPIR-V may have become several; the other columns stand beside the
                // last one.
                let last = insts.peek().is_none_or(|next| next.loc.word != inst.loc.word);
                self.rows(inst.loc, &shape, &text, last);
            }
            let parts = wide.is_some_and(|wide| wide.parts(id));
            let text = module.terminator_text(&block.terminator);
            self.rows(block.loc, if parts { "items part" } else { "" }, &text, true);
        }
    }

    /// Adds an instruction of the kernel. If it is the `last` one of its word, the row shows the word's
    /// other forms too.
    fn rows(&mut self, loc: Loc, shape: &str, text: &str, last: bool) {
        let take = |by: &mut ByWord| {
            let texts = if last { by.remove(&loc.word) } else { None };
            texts.unwrap_or_default()
        };
        let (wide, code) = (take(&mut self.wide), take(&mut self.code));
        let remarks = take(&mut self.remarks);
        let at = |texts: &[String], i: usize| texts.get(i).cloned().unwrap_or_default();
        let word = loc.word.to_string();
        let opcode = parse::opcode_name(loc.opcode).unwrap_or_default();
        let opcode = opcode.trim_start_matches("Op");
        self.row([&word, opcode, shape, text, &at(&wide, 0), &at(&code, 0)]);
        for i in 1..wide.len().max(code.len()) {
            self.row(["", "", "", "", &at(&wide, i), &at(&code, i)]);
        }
        for remark in remarks {
            let _ = writeln!(self.out, "{:>6}  {remark}", "^");
        }
    }

    fn row(&mut self, [word, opcode, shape, text, wide, code]: [&str; 6]) {
        let (opcode, shape) = (cut(opcode, NAME), cut(shape, SHAPE));
        let (text, wide) = (cut(text, CODE), cut(wide, CODE));
        let line = format!(
            "{word:>6} {opcode:<NAME$} {shape:<SHAPE$} {text:<CODE$} | {wide:<CODE$} | {code}"
        );
        let _ = writeln!(self.out, "{}", line.trim_end().trim_end_matches([' ', '|']));
    }
}

/// A text cut to a column's width.
fn cut(text: &str, width: usize) -> String {
    match text.chars().count() {
        n if n <= width => text.to_owned(),
        _ => text.chars().take(width - 2).chain("..".chars()).collect(),
    }
}

/// The widened code. An exclamation mark stands for a memory access item by item, a question mark for
/// one under a mask.
fn widened_by_word(wide: &Widened) -> ByWord {
    let function = &wide.module.functions[wide.function];
    let mut found = ByWord::new();
    for (_, block) in function.blocks.iter() {
        for inst in &block.insts {
            let mark = match &inst.op {
                Op::Gather(..) | Op::Scatter(..) => "! ",
                Op::MaskedLoad(..) | Op::MaskedStore(..) => "? ",
                _ => "",
            };
            let text = format!("{mark}{}", wide.module.inst_text(function, inst));
            found.entry(inst.loc.word).or_default().push(text);
        }
    }
    found
}

/// Remarks on instructions that slow the code down.
fn remarks_by_word(wide: &Widened) -> ByWord {
    let mut found = ByWord::new();
    for (loc, what) in &wide.remarks {
        found.entry(loc.word).or_default().push(what.clone());
    }
    found
}

/// The instructions of a form of the kernel in LLVM's assembly text, and the number of other
/// instructions.
fn code_by_word(assembly: &str, form: Form) -> (ByWord, usize) {
    let mut found = ByWord::new();
    let mut others = 0;
    let mut word = None;
    let mut label = "";
    for line in assembly.lines() {
        let mut parts = line.split_ascii_whitespace();
        match parts.next() {
            // .loc FILE LINE COLUMN
            Some(".loc") => {
                let mut numbers = parts.map_while(|part| part.parse::<u32>().ok()).skip(1);
                let place = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                word = (place.1 == form as u32 && place.0 != 0).then_some(place.0);
            }
            Some(".section") if line.contains(".debug") => break,
            Some(".cfi_endproc" | ".Lfunc_end0:") => word = None,
            Some(first) if first.starts_with(".LBB") => label = first,
            Some(first) if line.starts_with('\t') && !first.starts_with(['.', '#']) => {
                let text = line.split(" #").next().unwrap_or(line).trim();
                let text = format!("{label:<10}{}", text.replace('\t', " "));
                match word {
                    Some(word) => found.entry(word).or_default().push(text),
                    None => others += 1,
                }
                label = "";
            }
            _ => {}
        }
    }
    (found, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_found_by_word_and_form() {
        let text = "tally_entry:\n\tpushq\t%rbp\n\t.loc\t0 61 2 prologue_end\n.LBB0_3:\n\
            \tvmovups\t(%rsi), %ymm0\n\t.loc\t0 61 1\n\tmovss\t(%rsi), %xmm0\n\
            \t.loc\t0 0 2\n\tret\n\t.section\t.debug_line\n\tnop\n";
        let (found, others) = code_by_word(text, Form::Vector);
        assert_eq!(found[&61], [".LBB0_3:  vmovups (%rsi), %ymm0"]);
        assert_eq!((found.len(), others), (1, 3));
        let (found, _) = code_by_word(text, Form::Item);
        assert_eq!(found[&61], ["          movss (%rsi), %xmm0"]);
    }
}
