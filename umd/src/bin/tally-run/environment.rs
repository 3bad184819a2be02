// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--check-environment`: the drivers and loaders of this machine, and those that a program needs and gets.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::image::{Image, find_program};
use crate::loader::{Loader, SystemLoader, beside_driver, driver, followed, unpacked};
use crate::{CANNOT_START, Result};

/// The findings. Missing items are null in JSON.
#[derive(Serialize)]
struct Environment {
    /// The driver's file.
    driver: Answer,
    /// The loader that the dynamic linker finds.
    system_loader: Option<System>,
    /// The loader beside the driver.
    tally_loader: Option<String>,
    /// The loaders that scripts/loaders has unpacked.
    unpacked_loaders: Unpacked,
    program: Option<Program>,
    /// Whether the driver exists, and everything that the program needs.
    works: bool,
}

#[derive(Serialize)]
struct System {
    file: String,
    new_enough_for_sycl: bool,
}

#[derive(Serialize)]
struct Unpacked {
    trixie: Option<String>,
    sid: Option<String>,
}

#[derive(Serialize)]
struct Program {
    file: Answer,
    needs_loader: Option<&'static str>,
    gets_loader: Option<Answer>,
}

/// A file, or why there is none.
#[derive(Clone, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    File(String),
    Error(String),
}

impl From<Result<String>> for Answer {
    fn from(found: Result<String>) -> Self {
        match found {
            Ok(file) => Self::File(file),
            Err(why) => Self::Error(why.to_string()),
        }
    }
}

impl Answer {
    fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    fn text(&self) -> &str {
        match self {
            Self::File(text) | Self::Error(text) => text,
        }
    }
}

/// Prints the findings, and what `program` needs and gets. Fails if the program cannot be started.
pub(crate) fn show(program: Option<&OsStr>, json: bool) -> ExitCode {
    let found = look(program);
    match json {
        true => match serde_json::to_string_pretty(&found) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("tally-run: {error}"),
        },
        false => found.print(),
    }
    if found.works { ExitCode::SUCCESS } else { ExitCode::from(CANNOT_START) }
}

fn look(program: Option<&OsStr>) -> Environment {
    let system = SystemLoader::find();
    let driver = Answer::from(driver().map(|it| it.display().to_string()));
    let program = program.map(|name| look_at(name, &system));
    let gets = program
        .as_ref()
        .is_none_or(|it| it.file.is_file() && it.gets_loader.as_ref().is_some_and(Answer::is_file));
    let file = |path: &Path| followed(path);
    Environment {
        works: driver.is_file() && gets,
        driver,
        system_loader: match &system {
            SystemLoader::Missing => None,
            SystemLoader::Old(path) => {
                Some(System { file: file(path), new_enough_for_sycl: false })
            }
            SystemLoader::New(path) => Some(System { file: file(path), new_enough_for_sycl: true }),
        },
        tally_loader: beside_driver().map(|it| it.file()),
        unpacked_loaders: Unpacked {
            trixie: unpacked("trixie").map(|it| it.file()),
            sid: unpacked("sid").map(|it| it.file()),
        },
        program,
    }
}

fn look_at(name: &OsStr, system: &SystemLoader) -> Program {
    let Some(path) = find_program(name) else {
        let missing = Answer::Error(format!("{}: not found", name.to_string_lossy()));
        return Program { file: missing, needs_loader: None, gets_loader: None };
    };
    let image = Image::of(&path);
    let needs_new = image.needs_new_loader();
    Program {
        file: Answer::File(path.display().to_string()),
        needs_loader: Some(if needs_new { "1.20 or newer, for SYCL" } else { "any loader" }),
        gets_loader: Some(Loader::automatic(system, &image).map(|it| it.file()).into()),
    }
}

impl Environment {
    fn print(&self) {
        let say = |name: &str, text: &str| println!("{name:<16} {text}");
        say("driver", self.driver.text());
        match &self.system_loader {
            None => say("system's loader", "none"),
            Some(System { file, new_enough_for_sycl: true }) => say("system's loader", file),
            Some(System { file, .. }) => {
                say("system's loader", &format!("{file}, too old for SYCL"))
            }
        }
        if let Some(file) = &self.tally_loader {
            say("Tally's loader", file);
        }
        let Unpacked { trixie, sid } = &self.unpacked_loaders;
        say("loader of trixie", trixie.as_deref().unwrap_or("not unpacked"));
        say("loader of sid", sid.as_deref().unwrap_or("not unpacked"));
        if let Some(Program { file, needs_loader, gets_loader }) = &self.program {
            say("program", file.text());
            if let (Some(needs), Some(gets)) = (needs_loader, gets_loader) {
                say("it needs", needs);
                say("it gets", gets.text());
            }
        }
    }
}
