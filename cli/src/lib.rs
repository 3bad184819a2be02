// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of Tally's programs.
//!
//! Each is a type that its program parses with. Manual pages, completions and `docs/commands.md` are made
//! from the same types (`cli/examples/pages.rs`).

use clap::{Command, CommandFactory};

pub mod compiler;
pub mod gpu;
pub mod info;
pub mod progress;
pub mod run;
pub mod top;

pub use clap::Parser;

/// All of them, as users meet them.
pub fn commands() -> [Command; 5] {
    [
        run::Arguments::command(),
        info::Arguments::command(),
        top::Arguments::command(),
        compiler::Arguments::command(),
        gpu::Arguments::command(),
    ]
}

#[cfg(test)]
mod tests {
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
}
