// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of Tally's programs.
//!
//! Each is a type with which its program parses its arguments. Manual pages and completions are generated
//! from the same types (`cli/examples/pages.rs`), and so is `docs/commands.md`, which its test writes anew
//! with TALLY_BLESS=1.

use clap::{Command, CommandFactory};

pub mod compiler;
pub mod gpu;
pub mod info;
pub mod progress;
pub mod replay;
pub mod run;
pub mod top;

pub use clap::Parser;

/// The commands of all programs, in the order in which users meet them.
pub fn commands() -> [Command; 6] {
    [
        run::Arguments::command(),
        replay::Arguments::command(),
        info::Arguments::command(),
        top::Arguments::command(),
        compiler::Arguments::command(),
        gpu::Arguments::command(),
    ]
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::{env, fs};

    const PAGE: &str = "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->
<!-- Written by scripts/gen-commands; do not edit. -->
# Commands

This page has what each program says for `--help`. The packages bring the same as manual pages, and completions for bash, zsh and fish. `--version` prints a program's version.
";

    #[test]
    fn definitions_are_consistent() {
        for command in super::commands() {
            command.debug_assert();
        }
    }

    #[test]
    fn help_fits_a_terminal_and_every_option_has_one() {
        for mut command in super::commands() {
            let name = command.get_name().to_owned();
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name}: {}", argument.get_id());
            }
            for text in [command.render_help(), command.render_long_help()] {
                let text = text.to_string();
                let long = text.lines().find(|line| line.chars().count() > 80);
                assert_eq!(long, None, "{name}");
            }
        }
    }
    #[test]
    fn the_page_of_commands_is_current() {
        let mut text = PAGE.to_owned();
        for mut command in super::commands() {
            let help = command.render_long_help().to_string();
            let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
            let name = command.get_name();
            writeln!(text, "\n## {name}\n\n```text\n{}\n```", lines.join("\n")).expect("a string");
        }
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/commands.md");
        if env::var_os("TALLY_BLESS").is_some() {
            fs::write(page, &text).expect("the page can be written");
        }
        assert_eq!(
            fs::read_to_string(page).expect("the page"),
            text,
            "scripts/gen-commands writes it anew"
        );
    }
}
