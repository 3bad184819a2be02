// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes what is made from the programs' command lines.
//!
//! `pages FOLDER` writes `man1/*.1` and, in `completions/`, files for bash, zsh and fish under the names by
//! which these shells look for them.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::aot::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

fn main() -> io::Result<()> {
    match std::env::args_os().nth(1) {
        Some(folder) => write_all(Path::new(&folder)),
        None => Err(io::Error::other("usage: pages FOLDER")),
    }
}

fn write_all(folder: &Path) -> io::Result<()> {
    let (manuals, completions) = (folder.join("man1"), folder.join("completions"));
    fs::create_dir_all(&manuals)?;
    for shell in ["bash", "zsh", "fish"] {
        fs::create_dir_all(completions.join(shell))?;
    }
    for mut command in tally_cli::commands() {
        let name = command.get_name().to_owned();
        fs::write(manuals.join(format!("{name}.1")), manual(&command)?)?;
        for (shell, file) in [
            (Shell::Bash, format!("bash/{name}")),
            (Shell::Zsh, format!("zsh/_{name}")),
            (Shell::Fish, format!("fish/{name}.fish")),
        ] {
            let mut text = Vec::new();
            generate(shell, &mut command, &name, &mut text);
            fs::write(completions.join(file), text)?;
        }
    }
    Ok(())
}

/// The manual page: what the option types say, then the sections of the text that follows them in the help.
fn manual(command: &Command) -> io::Result<Vec<u8>> {
    let page = Man::new(command.clone().after_long_help(""));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    let usage = usage(command);
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for line in usage.lines() {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        roff.text([bold(name), roman(" "), roman(rest)]).control("br", []);
    }
    roff.to_writer(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    let mut roff = Roff::new();
    let mut open = false;
    for line in after(command).lines() {
        match line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            Some(title) => {
                if open {
                    roff.control("fi", []);
                }
                roff.control("SH", [title.to_uppercase().as_str()]).control("nf", []);
                open = true;
            }
            None => {
                roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
        }
    }
    if open {
        roff.control("fi", []);
    }
    roff.to_writer(&mut text)?;
    page.render_version_section(&mut text)?;
    Ok(text)
}

/// The lines of the usage, without the word.
fn usage(command: &Command) -> String {
    let text = command.clone().render_usage().to_string();
    let lines = text.lines().map(|line| line.trim_start_matches("Usage:").trim().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

fn after(command: &Command) -> String {
    command.get_after_long_help().map(ToString::to_string).unwrap_or_default()
}
