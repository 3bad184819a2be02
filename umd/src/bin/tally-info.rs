// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tally-info`: shows what Tally reports to a Level Zero application on this machine.
//!
//! It asks the driver's own entry points, in this process and without a loader, so it also works
//! where no loader is installed.

use std::ffi::{CStr, c_char};
use std::fmt::{self, Display, Write as _};
use std::process::ExitCode;
use std::ptr;

use bitflags::Flags;
use tally_ze::*;
use ze_tally::api::{Call, device, driver};

const USAGE: &str = "\
usage: tally-info [OPTION]...

Shows the driver and its devices.

  -l, --list      names only
  -h, --help      this text
  -V, --version   the version
";

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            // A pipe that closes early is no failure of the driver.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tally-info: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String> {
    use lexopt::prelude::*;
    let mut list = false;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('l') | Long("list") => list = true,
            Short('h') | Long("help") => return Ok(USAGE.to_owned()),
            Short('V') | Long("version") => {
                return Ok(format!("tally-info {}\n", env!("CARGO_PKG_VERSION")));
            }
            _ => return Err(argument.unexpected().into()),
        }
    }
    let drivers = drivers()?;
    let mut text = String::new();
    for &driver in &drivers {
        let devices = devices(driver)?;
        if list {
            writeln!(text, "Driver #0: Tally")?;
            for (i, &device) in devices.iter().enumerate() {
                let name = properties(device)?.name;
                writeln!(text, " `-- Device #{i}: {}", string(&name))?;
                for (part, &device) in subdevices(device)?.iter().enumerate() {
                    let name = properties(device)?.name;
                    writeln!(text, "     `-- Device #{i}.{part}: {}", string(&name))?;
                }
            }
            continue;
        }
        let mut table = Table(&mut text);
        show_driver(&mut table, driver, devices.len())?;
        for (i, &device) in devices.iter().enumerate() {
            show_device(&mut table, &i.to_string(), device)?;
            for (part, &device) in subdevices(device)?.iter().enumerate() {
                show_device(&mut table, &format!("{i}.{part}"), device)?;
            }
        }
    }
    Ok(text)
}

/// Calls an entry point of the driver; `Err` holds what the driver says, which begins with its name.
macro_rules! ask {
    ($function:path, $($argument:expr),* $(,)?) => {{
        // SAFETY: pointers lead to variables and arrays of the caller's that live during the call,
        // arrays have the length that goes with them, and no handle is destroyed.
        let result = unsafe { $function($($argument),*) };
        answer(result)
    }};
}

fn answer(result: ze_result_t) -> Result<()> {
    if result == ze_result_t::ZE_RESULT_SUCCESS {
        return Ok(());
    }
    // zeDriverGetLastErrorDescription is no choice: there may be no driver to ask. SAFETY: the
    // string is good until this thread's next error.
    let why = unsafe { CStr::from_ptr(ze_tally::error::last()) };
    Err(format!("{result:?}: {}", why.to_string_lossy()).into())
}

/// A list in the two-call way.
fn list<T: Default + Clone>(mut get: impl FnMut(*mut u32, *mut T) -> Result<()>) -> Result<Vec<T>> {
    let mut count = 0;
    get(&raw mut count, ptr::null_mut())?;
    let mut all = vec![T::default(); count as usize];
    if count != 0 {
        get(&raw mut count, all.as_mut_ptr())?;
        all.truncate(count as usize);
    }
    Ok(all)
}

fn drivers() -> Result<Vec<ze_driver_handle_t>> {
    ask!(driver::zeInit, ze_init_flags_t::empty())?;
    list(|count, out| ask!(driver::zeDriverGet, count, out))
}

fn devices(driver: ze_driver_handle_t) -> Result<Vec<ze_device_handle_t>> {
    list(|count, out| ask!(device::zeDeviceGet, driver, count, out))
}

fn subdevices(device: ze_device_handle_t) -> Result<Vec<ze_device_handle_t>> {
    list(|count, out| ask!(device::zeDeviceGetSubDevices, device, count, out))
}

fn properties(device: ze_device_handle_t) -> Result<ze_device_properties_t> {
    let stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
    let mut properties = ze_device_properties_t { stype, ..Default::default() };
    ask!(device::zeDeviceGetProperties, device, &raw mut properties)?;
    Ok(properties)
}

/// Lines of a name and a value, the values below each other.
struct Table<'a>(&'a mut String);

/// Columns of the names.
const WIDTH: usize = 44;

impl Table<'_> {
    fn head(&mut self, text: impl Display) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}{text}");
    }

    fn row(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "  {name:<WIDTH$}{value}");
    }

    /// A name whose values follow, one a line.
    fn rows(&mut self, name: &str, values: impl IntoIterator<Item = impl Display>) {
        let mut name = name;
        for value in values {
            self.row(name, value);
            name = "";
        }
    }
}

fn show_driver(table: &mut Table<'_>, driver: ze_driver_handle_t, devices: usize) -> Result<()> {
    let mut properties = ze_driver_properties_t::default();
    ask!(driver::zeDriverGetProperties, driver, &raw mut properties)?;
    let mut api = ze_api_version_t::default();
    ask!(driver::zeDriverGetApiVersion, driver, &raw mut api)?;
    let mut ipc = ze_driver_ipc_properties_t::default();
    ask!(driver::zeDriverGetIpcProperties, driver, &raw mut ipc)?;
    let extensions = list::<ze_driver_extension_properties_t>(|count, out| {
        ask!(driver::zeDriverGetExtensionProperties, driver, count, out)
    })?;
    let version = properties.driverVersion;
    table.head("Driver");
    table.row("Name", "Tally");
    table.row(
        "Version",
        format_args!("{}.{}.{}", version >> 24, version >> 16 & 0xff, version & 0xffff),
    );
    table.row("Level Zero API", Version(api.0));
    table.row("UUID", Uuid(&properties.uuid.id));
    table.row("Sharing between processes", flags(&ipc.flags, "ZE_IPC_PROPERTY_FLAG_"));
    table.row("Devices", devices);
    table.row("Cache of kernels", ze_tally::core::module::cache::describe());
    table.rows(
        "Extensions",
        extensions.iter().map(|it| format!("{} {}", string(&it.name), Version(it.version))),
    );
    Ok(())
}

fn show_device(table: &mut Table<'_>, index: &str, device: ze_device_handle_t) -> Result<()> {
    let info = properties(device)?;
    table.head(format_args!("Device #{index}"));
    table.row("Name", string(&info.name));
    table.row("Lane", lane(device)?);
    table.row("Type", format!("{:?}", info.r#type).replace("ZE_DEVICE_TYPE_", ""));
    table.row("Flags", flags(&info.flags, "ZE_DEVICE_PROPERTY_FLAG_"));
    table.row(
        "Vendor and device number",
        format_args!("{:#06x}, {:#06x}", info.vendorId, info.deviceId),
    );
    table.row("UUID", Uuid(&info.uuid.id));
    table.row("Execution units", info.numSlices * info.numEUsPerSubslice);
    table.row("SIMD lanes of an execution unit", info.physicalEUSimdWidth);
    table.row("Clock", format_args!("{} MHz", info.coreClockRate));
    table.row("Timer", format_args!("{} Hz", info.timerResolution));
    table.row("Bits of the timer", info.timestampValidBits);
    table.row("Bits of kernels' timestamps", info.kernelTimestampValidBits);
    table.row("Queues at a time", info.maxHardwareContexts);
    show_compute(table, device)?;
    show_modules(table, device)?;
    show_queue_groups(table, device)?;
    show_memory(table, device, &info)
}

/// The lane by which the driver reaches the device.
fn lane(device: ze_device_handle_t) -> Result<String> {
    // SAFETY: only a handle follows, which the driver gave and which lives as long as the process.
    let call = unsafe { Call::new() };
    let lane = call.handle(device, "hDevice").map_err(|error| error.to_string())?.backend().lane();
    Ok(match lane {
        "embedded" => "embedded (the device runs in the program's process)".to_owned(),
        other => other.to_owned(),
    })
}

fn show_compute(table: &mut Table<'_>, device: ze_device_handle_t) -> Result<()> {
    let mut it = ze_device_compute_properties_t::default();
    ask!(device::zeDeviceGetComputeProperties, device, &raw mut it)?;
    table.row("Work-items of a group", it.maxTotalGroupSize);
    let [x, y, z] = [it.maxGroupSizeX, it.maxGroupSizeY, it.maxGroupSizeZ];
    table.row("Work-items of a group in x, y, z", format_args!("{x}, {y}, {z}"));
    let [x, y, z] = [it.maxGroupCountX, it.maxGroupCountY, it.maxGroupCountZ];
    table.row("Groups in x, y, z", format_args!("{x}, {y}, {z}"));
    table.row("Local memory of a group", Bytes(it.maxSharedLocalMemory.into()));
    let sizes = it.subGroupSizes.iter().take(it.numSubGroupSizes as usize);
    table.row("Sub-group sizes", join(sizes));
    Ok(())
}

fn show_modules(table: &mut Table<'_>, device: ze_device_handle_t) -> Result<()> {
    let mut it = ze_device_module_properties_t::default();
    ask!(device::zeDeviceGetModuleProperties, device, &raw mut it)?;
    table.row("SPIR-V", Version(it.spirvVersionSupported));
    table.row("Kernels can use", flags(&it.flags, "ZE_DEVICE_MODULE_FLAG_"));
    for (name, value) in [
        ("16-bit floating point", it.fp16flags),
        ("32-bit floating point", it.fp32flags),
        ("64-bit floating point", it.fp64flags),
    ] {
        table.row(name, flags(&value, "ZE_DEVICE_FP_FLAG_"));
    }
    table.row("Arguments of a kernel", Bytes(it.maxArgumentsSize.into()));
    Ok(())
}

fn show_queue_groups(table: &mut Table<'_>, device: ze_device_handle_t) -> Result<()> {
    let groups = list::<ze_command_queue_group_properties_t>(|count, out| {
        ask!(device::zeDeviceGetCommandQueueGroupProperties, device, count, out)
    })?;
    let lines = groups.iter().enumerate().map(|(i, it)| {
        let can = flags(&it.flags, "ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_");
        let pattern = Bytes(it.maxMemoryFillPatternSize as u64);
        format!("#{i}: {} queues, {can}, fill patterns of up to {pattern}", it.numQueues)
    });
    table.rows("Queue groups", lines);
    Ok(())
}

fn show_memory(
    table: &mut Table<'_>,
    device: ze_device_handle_t,
    info: &ze_device_properties_t,
) -> Result<()> {
    let memories = list::<ze_device_memory_properties_t>(|count, out| {
        ask!(device::zeDeviceGetMemoryProperties, device, count, out)
    })?;
    let lines = memories.iter().enumerate();
    let lines = lines.map(|(i, it)| format!("#{i}: {}, {}", string(&it.name), Bytes(it.totalSize)));
    table.rows("Memories", lines);
    table.row("Largest allocation", Bytes(info.maxMemAllocSize));
    let caches = list::<ze_device_cache_properties_t>(|count, out| {
        ask!(device::zeDeviceGetCacheProperties, device, count, out)
    })?;
    table.rows("Caches", caches.iter().map(|it| Bytes(it.cacheSize as u64)));
    let mut access = ze_device_memory_access_properties_t::default();
    ask!(device::zeDeviceGetMemoryAccessProperties, device, &raw mut access)?;
    for (name, value) in [
        ("Access to host memory", access.hostAllocCapabilities),
        ("Access to device memory", access.deviceAllocCapabilities),
        ("Access to shared memory", access.sharedSingleDeviceAllocCapabilities),
        ("Access to memory of malloc", access.sharedSystemAllocCapabilities),
    ] {
        table.row(name, flags(&value, "ZE_MEMORY_ACCESS_CAP_FLAG_"));
    }
    Ok(())
}

/// A version as Level Zero encodes it.
struct Version(u32);

impl Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> 16, self.0 & 0xffff)
    }
}

/// A size, also in the largest unit that leaves a number of at least 1.
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

struct Uuid<'a>(&'a [u8]);

impl Display for Uuid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Names of the flags that are set, in small letters and without what all have in common.
fn flags(flags: &impl Flags, prefix: &str) -> String {
    if flags.is_empty() {
        return "none".to_owned();
    }
    let short = |name: &str| name.strip_prefix(prefix).unwrap_or(name).to_lowercase();
    join(flags.iter_names().map(|(name, _)| short(name).replace('_', " ")))
}

fn join(items: impl Iterator<Item = impl Display>) -> String {
    items.map(|it| it.to_string()).collect::<Vec<_>>().join(", ")
}

/// The text in an array that ends with a NUL.
fn string(chars: &[c_char]) -> String {
    let bytes = chars.iter().map(|&it| it as u8).take_while(|&it| it != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}
