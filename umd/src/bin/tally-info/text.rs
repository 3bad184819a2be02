// SPDX-License-Identifier: MIT OR Apache-2.0
//! The readable output.

use std::fmt::{self, Display, Write as _};

use crate::query::{Device, Driver, Info};

/// Names of drivers and devices.
pub(crate) fn list(info: &Info) -> String {
    let mut text = String::new();
    for (number, driver) in info.drivers.iter().enumerate() {
        line(&mut text, format_args!("Driver #{number}: {}", driver.name));
        for (i, device) in driver.devices.iter().enumerate() {
            line(&mut text, format_args!(" `-- Device #{i}: {}", device.name));
            for (part, device) in device.subdevices.iter().enumerate() {
                line(&mut text, format_args!("     `-- Device #{i}.{part}: {}", device.name));
            }
        }
    }
    text
}

/// Everything.
pub(crate) fn table(info: &Info) -> String {
    let mut text = String::new();
    let mut table = Table(&mut text);
    for driver in &info.drivers {
        show_driver(&mut table, driver);
        for (i, device) in driver.devices.iter().enumerate() {
            show_device(&mut table, &i.to_string(), device);
            for (part, device) in device.subdevices.iter().enumerate() {
                show_device(&mut table, &format!("{i}.{part}"), device);
            }
        }
    }
    text
}

fn line(text: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{line}");
}

/// Lines of a name and a value, with the values aligned.
struct Table<'a>(&'a mut String);

/// Width of the names, in columns.
const WIDTH: usize = 44;

impl Table<'_> {
    fn head(&mut self, text: impl Display) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        line(self.0, format_args!("{gap}{text}"));
    }

    fn row(&mut self, name: &str, value: impl Display) {
        line(self.0, format_args!("  {name:<WIDTH$}{value}"));
    }

    /// A name with several values, one per line.
    fn rows(&mut self, name: &str, values: impl IntoIterator<Item = impl Display>) {
        let mut name = name;
        for value in values {
            self.row(name, value);
            name = "";
        }
    }
}

fn show_driver(table: &mut Table<'_>, it: &Driver) {
    table.head("Driver");
    table.row("Name", it.name);
    table.row("Version", &it.version);
    table.row("Level Zero API", &it.api_version);
    table.row("UUID", &it.uuid);
    table.row("Sharing between processes", all(&it.ipc));
    table.row("Devices", it.devices.len());
    table.row("Cache of kernels", &it.kernel_cache);
    let extensions = it.extensions.iter();
    table.rows("Extensions", extensions.map(|it| format!("{} {}", it.name, it.version)));
}

fn show_device(table: &mut Table<'_>, index: &str, it: &Device) {
    table.head(format_args!("Device #{index}"));
    table.row("Name", &it.name);
    table.row(
        "Lane",
        match it.lane.as_str() {
            "embedded" => "embedded (the device runs in the program's process)",
            other => other,
        },
    );
    table.row("Type", &it.kind);
    table.row("Flags", all(&it.flags));
    let numbers = format!("{:#06x}, {:#06x}", it.vendor_id, it.device_id);
    table.row("Vendor and device number", numbers);
    table.row("UUID", &it.uuid);
    table.row("Execution units", it.execution_units);
    table.row("SIMD lanes of an execution unit", it.simd_lanes);
    table.row("Clock", format_args!("{} MHz", it.clock_mhz));
    table.row("Timer", format_args!("{} Hz", it.timer_hz));
    table.row("Bits of the timer", it.timer_bits);
    table.row("Bits of kernels' timestamps", it.kernel_timestamp_bits);
    table.row("Queues at a time", it.queues);
    table.row("Work-items of a group", it.max_group_size);
    table.row("Work-items of a group in x, y, z", all(&it.max_group_sizes));
    table.row("Groups in x, y, z", all(&it.max_group_counts));
    table.row("Local memory of a group", Bytes(it.local_memory_bytes.into()));
    table.row("Sub-group sizes", all(&it.sub_group_sizes));
    table.row("SPIR-V", &it.spirv_version);
    table.row("Kernels can use", all(&it.kernel_features));
    table.row("16-bit floating point", all(&it.fp16));
    table.row("32-bit floating point", all(&it.fp32));
    table.row("64-bit floating point", all(&it.fp64));
    table.row("Arguments of a kernel", Bytes(it.max_arguments_bytes.into()));
    let groups = it.queue_groups.iter().enumerate().map(|(i, it)| {
        let (can, pattern) = (all(&it.can), Bytes(it.max_fill_pattern_bytes));
        format!("#{i}: {} queues, {can}, fill patterns of up to {pattern}", it.queues)
    });
    table.rows("Queue groups", groups);
    let memories = it.memories.iter().enumerate();
    let memories = memories.map(|(i, it)| format!("#{i}: {}, {}", it.name, Bytes(it.bytes)));
    table.rows("Memories", memories);
    table.row("Largest allocation", Bytes(it.max_allocation_bytes));
    table.rows("Caches", it.cache_bytes.iter().map(|&bytes| Bytes(bytes)));
    table.row("Access to host memory", all(&it.access.host));
    table.row("Access to device memory", all(&it.access.device));
    table.row("Access to shared memory", all(&it.access.shared));
    table.row("Access to memory of malloc", all(&it.access.system));
}

/// The items in one line.
fn all(items: &[impl Display]) -> String {
    match items {
        [] => "none".to_owned(),
        items => items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// A size in bytes, and in the largest unit that gives a number of at least 1.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"];
        let power = (self.0.max(1).ilog2() / 10).min(units.len() as u32);
        if power == 0 {
            return write!(f, "{} bytes", self.0);
        }
        let large = self.0 as f64 / (1_u64 << (10 * power)) as f64;
        let digits = if large.fract() == 0.0 { 0 } else { 2 };
        write!(f, "{} ({large:.digits$} {})", self.0, units[power as usize - 1])
    }
}
