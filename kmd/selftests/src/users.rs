// SPDX-License-Identifier: GPL-2.0
//! Limits of a user: with any number of processes and files, a user never gets all of a resource.

use tally_uapi::ioctl::{VmBind, VmCreate, VmDestroy, bind_flag, bind_op};

use crate::Outcome;
use crate::device::{
    Fixture, Node, PAGE, RW, counter, in_ms, memory_limit, nobody_is_left, shared_kib, wait,
};

/// Lets all users open render nodes.
pub fn open_to_all() {
    for entry in std::fs::read_dir("/dev/dri").into_iter().flatten().flatten() {
        let path = std::ffi::CString::new(entry.path().to_string_lossy().as_bytes()).unwrap();
        // SAFETY: a valid string.
        unsafe { libc::chmod(path.as_ptr(), 0o666) };
    }
}

/// Runs `f` in a process of another user, who may open render nodes. Returns whether `f` returned true.
fn as_another_user(f: impl FnOnce(Node) -> bool) -> bool {
    open_to_all();
    // SAFETY: the program has one thread here; the child only makes system calls, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let good = libc::setuid(65534) == 0
                && std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(Node::open())))
                    .unwrap_or(false);
            libc::_exit(i32::from(!good));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status == 0
    }
}

/// "Most address spaces of a user": those of all the user's files count.
pub fn one_user_cannot_have_all_vms() {
    nobody_is_left();
    let mut nodes = Vec::new();
    let mut vms = 0;
    'files: loop {
        let node = Node::open();
        for index in 0.. {
            let start = 0x20_0000_0000 + index * PAGE;
            match node.call(&mut VmCreate { start, size: PAGE, ..Default::default() }) {
                Ok(()) => vms += 1,
                Err(error) => {
                    assert_eq!(error, libc::ENOSPC);
                    nodes.push(node);
                    if index == 0 {
                        break 'files;
                    }
                    break;
                }
            }
        }
    }
    assert_eq!(vms, counter("user_vms"));
    assert!(as_another_user(|node| {
        let mut create = VmCreate { start: 0x20_0000_0000, size: PAGE, ..Default::default() };
        node.call(&mut create).is_ok()
            && node.call(&mut VmDestroy { vm_id: create.vm_id, pad: 0 }).is_ok()
    }));
    drop(nodes);
    nobody_is_left();
}

/// "What was closed counts until the device has answered." Ioctls wait for that before they answer ENOSPC:
/// a caller that asks just after other files of its user were closed gets the resources of those files.
pub fn closed_things_make_room() {
    nobody_is_left();
    let null = |fixture: &Fixture, piece: u64| {
        let map = fixture.map(0, 0, piece << 14, 1 << 14, RW);
        fixture.bind(VmBind { op: bind_op::MAP_NULL, ..map })
    };
    let (next, full) = (Fixture::new(), Fixture::new());
    let memory = [&next, &full].map(|fixture| fixture.memory(0, 3));
    let queue = |fixture: &Fixture| fixture.node.call(&mut fixture.queue_create(0));
    while queue(&full).is_ok() {}
    // A mapping keeps the file open.
    drop((memory, full));
    assert_eq!(queue(&next), Ok(()));

    let vm = |node: &Node| Fixture::create_vm(node, 1 << 36);
    let mut full = Vec::new();
    let next = loop {
        let node = Node::open();
        if vm(&node).is_err() {
            break node;
        }
        while vm(&node).is_ok() {}
        full.push(node);
    };
    // Only one file: the first of many would be answered while the others are closed.
    drop(full.pop());
    assert!(vm(&next).is_ok());
    drop((next, full));

    let next = Fixture::new();
    let full: Vec<_> = (0..16).map(|_| Fixture::new()).collect();
    full.iter().for_each(|fixture| while (0..4).any(|piece| null(fixture, piece).is_ok()) {});
    drop(full);
    assert_eq!(null(&next, 0), Ok(()));
}

/// "Memory that the buffers of a user may use": those of all the user's files count.
pub fn one_user_cannot_have_all_memory() {
    nobody_is_left();
    let mut held = Vec::new();
    for pages in (0..20).rev().map(|bits| 1 << bits) {
        loop {
            let node = Node::open();
            match node.bo(pages, 0) {
                Ok(_) => held.push(node),
                Err(error) => {
                    assert_eq!(error, libc::ENOSPC);
                    break;
                }
            }
        }
    }
    let left = memory_limit() - counter("memory");
    assert!(left >= memory_limit() / 16, "{left} bytes are left for others");
    assert!(as_another_user(|node| node.bo(1024, 0).is_ok()));
}

/// "Each costs the kernel memory of its own, and a file."
pub fn one_user_cannot_have_all_buffers() {
    nobody_is_left();
    let nodes: Vec<Node> = (0..4).map(|_| Node::open()).collect();
    let mut made = 0;
    while nodes[made as usize % nodes.len()].bo(1, 0).inspect_err(|&error| {
        assert_eq!(error, libc::ENOSPC);
    }) != Err(libc::ENOSPC)
    {
        made += 1;
    }
    assert_eq!(made, counter("buffers"));
    assert_eq!(made, counter("user_buffers"));
    assert!(as_another_user(|node| node.bo(1, 0).is_ok()));
}

/// VM_BIND: "Writable NULL memory counts like that of buffers".
pub fn null_memory_counts() {
    let fixture = Fixture::new();
    let before = counter("memory");
    let null = VmBind { op: bind_op::MAP_NULL, ..fixture.map(0, 0, 0, 512, RW) };
    fixture.bind(null).unwrap();
    assert_eq!(counter("memory"), before + 512 * PAGE);
    let read = VmBind { op: bind_op::MAP_NULL, ..fixture.map(0, 0, 512, 512, bind_flag::READ) };
    fixture.bind(read).unwrap();
    assert_eq!(counter("memory"), before + 512 * PAGE, "zeros that are only read need no memory");
    fixture.bind(fixture.unmap(0, 1024)).unwrap();
    assert_eq!(counter("memory"), before);
}

/// "Kernel memory that the mappings of a user may take": those in all the user's VMs, and the parts that UNMAP
/// makes of them.
pub fn one_user_cannot_have_all_kernel_memory() -> Outcome {
    nobody_is_left();
    let most = counter("user_kernel");
    if most > 16 << 20 {
        return Outcome::Skipped("the module was loaded without user_kernel_mib");
    }
    let fixtures = [Fixture::new(), Fixture::new()];
    let handles = fixtures.each_ref().map(|fixture| fixture.node.bo(3, 0).unwrap());
    fixtures[0].bind(fixtures[0].map(handles[0], 0, 0, 3, RW)).unwrap();
    for page in 3.. {
        let made: Vec<_> = fixtures
            .iter()
            .zip(handles)
            .map(|(fixture, handle)| fixture.bind(fixture.map(handle, 0, page, 1, RW)))
            .collect();
        if made.contains(&Err(libc::ENOSPC)) {
            break;
        }
        assert_eq!(made, [Ok(()); 2]);
    }
    // The rest is not enough for a command with a page of extents, but for some commands without.
    let null = |page| VmBind { op: bind_op::MAP_NULL, ..fixtures[0].map(0, 0, page, 1, RW) };
    let full = (50_000..60_000).find_map(|page| fixtures[0].bind(null(page)).err());
    assert_eq!(full, Some(libc::ENOSPC));
    assert_eq!(counter("kernel"), most);
    // Unmapping the middle splits a mapping in two.
    assert_eq!(fixtures[0].bind(fixtures[0].unmap(1, 1)), Err(libc::ENOSPC));
    assert!(as_another_user(|node| {
        let fixture = Fixture::on(node);
        let handle = fixture.node.bo(1, 0).unwrap();
        fixture.bind(fixture.map(handle, 0, 0, 1, RW)).is_ok()
    }));
    // Whole mappings can always be unmapped.
    fixtures[0].bind(fixtures[0].unmap(3, 1000)).unwrap();
    fixtures[0].bind(fixtures[0].unmap(1, 1)).unwrap();
    drop(fixtures);
    nobody_is_left();
    assert_eq!(counter("kernel"), 0);
    Outcome::Passed
}

/// RLIMIT_MEMLOCK counts by user: a second process can lock only as much as the first one has left.
pub fn locked_memory_is_counted_by_user() {
    let (first, second) = (Fixture::new(), Fixture::new());
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which is never undone.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            2 * PAGE as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let bind = |fixture: &Fixture| {
        let user = fixture.map(0, 0, 0, 2, RW);
        fixture.bind(VmBind { op: bind_op::MAP_USERPTR, offset: memory.addr() as u64, ..user })
    };
    let limit_and_user = || {
        let limit = libc::rlimit { rlim_cur: 3 * PAGE, rlim_max: 3 * PAGE };
        // SAFETY: system calls with numbers and a valid struct.
        unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) == 0 && libc::setuid(65534) == 0 }
    };
    // SAFETY: the program has one thread here; the children only make system calls, and end.
    let ends = |status: &dyn Fn() -> bool| unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(!status()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status == 0
    };
    assert!(ends(&|| limit_and_user() && bind(&first).is_ok()));
    // The VM of a file that other processes share keeps the pages when the process has ended.
    assert!(ends(&|| limit_and_user() && bind(&second) == Err(libc::ENOSPC)));
    first.bind(first.unmap(0, 2)).unwrap();
    assert!(ends(&|| limit_and_user() && bind(&second).is_ok()));
}

/// SEM_WAIT allocates the page of a cell, not the whole buffer.
pub fn a_wait_takes_no_memory_but_its_cells() {
    let node = Node::open();
    let handle = node.bo(64 << 10, 0).unwrap();
    let before = shared_kib();
    for cell in 0..4 {
        let entry = crate::device::entry(handle, cell * 0x100_0000, 1);
        assert_eq!(wait(&node, 0, &[entry], 0, 0), Err(libc::ETIME));
        assert_eq!(wait(&node, 0, &[entry], 0, in_ms(1)), Err(libc::ETIME));
    }
    // A page may be a huge page.
    let taken = shared_kib().saturating_sub(before);
    assert!(taken <= 4 * 2048 + 4096, "{taken} KiB of 256 MiB");
}
