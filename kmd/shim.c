// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that Rust cannot call: macros, inline functions, and a few services that the
 * kernel crate has no bindings for. raw/ declares and explains each.
 */

#include <linux/cred.h>
#include <linux/dma-fence-chain.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/hrtimer.h>
#include <linux/dma-resv.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/huge_mm.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pci.h>
#include <linux/pm.h>
#include <linux/pseudo_fs.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_gem_shmem_helper.h>
#include <drm/drm_syncobj.h>
#include <drm/drm_vma_manager.h>

#include "shim.h"

void tally_waiter_init(struct wait_queue_head *queue)
{
	init_waitqueue_head(queue);
}

/*
 * Sleeps until *woken is not 0. -ETIME at the deadline (CLOCK_MONOTONIC ns), -EINTR on a
 * signal, or only on a fatal one. A freezable sleep continues after the machine has slept; its
 * caller holds no lock.
 */
int tally_waiter_sleep(struct wait_queue_head *queue, const u32 *woken, s64 deadline, bool killable,
		       bool freezable)
{
	unsigned int state = (killable ? TASK_KILLABLE : TASK_INTERRUPTIBLE) |
			     (freezable ? TASK_FREEZABLE : 0);
	const u64 slack = 50 * NSEC_PER_USEC;
	ktime_t expires = ns_to_ktime(deadline);
	DEFINE_WAIT(wait);
	int ret;

	might_sleep();
	for (;;) {
		ret = prepare_to_wait_event(queue, &wait, state) ? -EINTR : 0;
		/* Pairs with the release in tally_waiter_wake(). */
		if (smp_load_acquire(woken)) {
			ret = 0;
			break;
		}
		if (ret)
			break;
		if (deadline == S64_MAX) {
			schedule();
		} else if (!schedule_hrtimeout_range(&expires, slack, HRTIMER_MODE_ABS)) {
			/* Pairs with the release in tally_waiter_wake(). */
			ret = smp_load_acquire(woken) ? 0 : -ETIME;
			break;
		}
	}
	finish_wait(queue, &wait);
	return ret;
}

void tally_waiter_wake(struct wait_queue_head *queue, u32 *woken)
{
	/*
	 * The sleeper sees all earlier writes: it acquires them in
	 * tally_waiter_sleep().
	 */
	smp_store_release(woken, 1);
	wake_up(queue);
}

u64 tally_memory_bytes(void)
{
	return (u64)totalram_pages() << PAGE_SHIFT;
}

u32 tally_current_user(void)
{
	return from_kuid(&init_user_ns, current_uid());
}

/*
 * Function-level reset by PCI itself, for a device that ignores its own reset
 * register. The caller may hold the device lock, which pci_reset_function takes.
 */
int tally_reset_function(struct pci_dev *pdev)
{
	int ret;

	/* Other users of the configuration space wait meanwhile. */
	pci_cfg_access_lock(pdev);
	pci_save_state(pdev);
	ret = pcie_reset_flr(pdev, PCI_RESET_DO_RESET);
	pci_restore_state(pdev);
	pci_cfg_access_unlock(pdev);
	return ret;
}

static const struct tally_power *tally_power;

static void tally_go_on(struct pci_dev *pdev)
{
	tally_power->go_on(pdev);
}

static void tally_pause(struct pci_dev *pdev)
{
	tally_power->pause(pdev);
}

static pci_ers_result_t tally_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	tally_power->halt(pdev);
	return state == pci_channel_io_perm_failure ? PCI_ERS_RESULT_DISCONNECT :
						      PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t tally_slot_reset(struct pci_dev *pdev)
{
	pci_restore_state(pdev);
	return PCI_ERS_RESULT_RECOVERED;
}

static const struct pci_error_handlers tally_error_handlers = {
	.error_detected = tally_error_detected,
	.slot_reset = tally_slot_reset,
	.resume = tally_go_on,
	.reset_prepare = tally_pause,
	.reset_done = tally_go_on,
};

/* A device without power has forgotten everything: to its clients that is a reset. */
static int tally_suspend(struct device *dev)
{
	tally_pause(to_pci_dev(dev));
	return 0;
}

static int tally_resume(struct device *dev)
{
	tally_go_on(to_pci_dev(dev));
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(tally_pm_ops, tally_suspend, tally_resume);

/* All devices have the same driver: the first device to be bound sets the handlers for all. */
void tally_handle_power(struct pci_dev *pdev, const struct tally_power *power)
{
	struct pci_driver *driver = to_pci_driver(pdev->dev.driver);

	tally_power = power;
	driver->err_handler = &tally_error_handlers;
	driver->driver.pm = pm_sleep_ptr(&tally_pm_ops);
}

int tally_huge_pages(struct drm_device *drm)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	return drm_gem_huge_mnt_create(drm, "within_size");
#else
	return -EOPNOTSUPP;
#endif
}

void *tally_page_address(struct page *page)
{
	return page_address(page);
}

/*
 * Allocates all pages of a buffer. -EINTR on a fatal signal, -ENODEV when the driver is unbound.
 * This takes long for a large buffer. The DRM helper, which then finds all pages, would notice
 * neither, and hold the buffer's lock meanwhile.
 */
int tally_fill_buffer(struct drm_gem_object *obj)
{
	struct address_space *mapping = obj->filp->f_mapping;
	unsigned long index = 0;
	struct folio *folio;

	/* Its pages are in use, and so allocated. */
	if (refcount_read(&to_drm_gem_shmem_obj(obj)->pages_use_count))
		return 0;
	while (index < obj->size >> PAGE_SHIFT) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (drm_dev_is_unplugged(obj->dev))
			return -ENODEV;
		folio = shmem_read_folio_gfp(mapping, index, mapping_gfp_mask(mapping));
		if (IS_ERR(folio))
			return PTR_ERR(folio);
		index = folio_next_index(folio);
		folio_put(folio);
		cond_resched();
	}
	return 0;
}

/*
 * Pins a buffer for another driver that attaches to its dma-buf and may write it. The caller holds
 * the buffer's lock. A driver that was unbound pins nothing more.
 */
int tally_pin_buffer(struct drm_gem_object *obj)
{
	struct drm_gem_shmem_object *shmem = to_drm_gem_shmem_obj(obj);
	int ret = tally_fill_buffer(obj);

	if (!ret)
		ret = drm_gem_shmem_pin_locked(shmem);
	if (!ret)
		shmem->pages_mark_dirty_on_put = true;
	return ret;
}

/*
 * A page of a buffer, with a reference that keeps it in place. It need not be pinned before: the
 * kernel neither moves nor writes out a page with one reference more than it knows of.
 */
struct page *tally_buffer_page(struct drm_gem_object *obj, unsigned long index)
{
	/* The memory of another driver. */
	if (!obj->filp)
		return ERR_PTR(-EINVAL);
	if (fatal_signal_pending(current))
		return ERR_PTR(-EINTR);
	return shmem_read_mapping_page(obj->filp->f_mapping, index);
}

/* Whether all pages of a buffer are allocated. fdinfo calls this with a spinlock held. */
enum drm_gem_object_status tally_buffer_status(struct drm_gem_object *obj)
{
	return refcount_read(&to_drm_gem_shmem_obj(obj)->pages_use_count) ?
		       DRM_GEM_OBJECT_RESIDENT : 0;
}

void tally_put_page(struct page *page)
{
	put_page(page);
}

/* Has the content of a page that the kernel has written itself kept when it is not in use. */
void tally_dirty_page(struct page *page)
{
	set_page_dirty_lock(page);
}

/*
 * mmap of the render node. The core's function finds a buffer by the offset of its first
 * page only; this one finds it by that of any page, so that a part of it can be mapped.
 */
int tally_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct drm_file *client = file->private_data;
	struct drm_device *drm = client->minor->dev;
	struct drm_gem_object *obj = NULL;
	struct drm_vma_offset_node *node;
	unsigned long rest;
	int ret;

	if (drm_dev_is_unplugged(drm))
		return -ENODEV;
	drm_vma_offset_lock_lookup(drm->vma_offset_manager);
	node = drm_vma_offset_lookup_locked(drm->vma_offset_manager, vma->vm_pgoff, vma_pages(vma));
	if (node) {
		obj = container_of(node, struct drm_gem_object, vma_node);
		/* An object without references is being freed, which waits for our lock. */
		if (!kref_get_unless_zero(&obj->refcount))
			obj = NULL;
	}
	drm_vma_offset_unlock_lookup(drm->vma_offset_manager);
	if (!obj)
		return -EINVAL;

	rest = drm_vma_node_start(node) + drm_vma_node_size(node) - vma->vm_pgoff;
	ret = drm_vma_node_is_allowed(node, client) ?
		drm_gem_mmap_obj(obj, rest << PAGE_SHIFT, vma) : -EACCES;
	drm_gem_object_put(obj);
	return ret;
}

/*
 * A fault on a page of a mapped buffer, found by its distance from the start of the
 * buffer. The helper's handlers use the distance from the start of the area, which
 * differs once munmap or mremap has cut the area, or if the area began further on.
 */
vm_fault_t tally_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct vm_area_struct *vma = vmf->vma;
	struct drm_gem_object *obj = vma->vm_private_data;
	struct drm_gem_shmem_object *shmem = to_drm_gem_shmem_obj(obj);
	pgoff_t index = vmf->pgoff - drm_vma_node_start(&obj->vma_node);
	vm_fault_t ret = VM_FAULT_SIGBUS;
	unsigned long pfn;

	if (order && order != PMD_ORDER)
		return VM_FAULT_FALLBACK;

	dma_resv_lock(obj->resv, NULL);
	/* The area holds the pages, so they are allocated. */
	if (index >= obj->size >> PAGE_SHIFT || WARN_ON_ONCE(!shmem->pages))
		goto unlock;
	pfn = page_to_pfn(shmem->pages[index]);
	if (!order) {
		ret = vmf_insert_pfn(vma, vmf->address, pfn);
		goto unlock;
	}
	ret = VM_FAULT_FALLBACK;
#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
	{
		unsigned long start = ALIGN_DOWN(vmf->address, PMD_SIZE);
		unsigned long within = (vmf->address - start) >> PAGE_SHIFT;

		/* A huge page that is aligned in memory as it is in the area. */
		if (start >= vma->vm_start && start + PMD_SIZE <= vma->vm_end &&
		    (pfn & (PMD_SIZE / PAGE_SIZE - 1)) == within &&
		    folio_test_pmd_mappable(page_folio(pfn_to_page(pfn))))
			ret = vmf_insert_pfn_pmd(vmf, pfn - within, vmf->flags & FAULT_FLAG_WRITE);
	}
#endif
unlock:
	dma_resv_unlock(obj->resv);
	return ret;
}

vm_fault_t tally_fault(struct vm_fault *vmf)
{
	return tally_huge_fault(vmf, 0);
}

/*
 * Counts pages that a user has locked, as io_uring and BPF do: one atomic for all the user's
 * processes. So uncounting them takes no lock that a process could hold. The process's own number
 * is for /proc only.
 */
static bool tally_lock_pages(struct user_struct *user, struct mm_struct *mm, unsigned long count)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	long before = atomic_long_read(&user->locked_vm);

	do {
		if (!capable(CAP_IPC_LOCK) && (before > limit || count > limit - before))
			return false;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &before, before + count));
	atomic64_add(count, &mm->pinned_vm);
	return true;
}

static void tally_unlock_pages(struct user_struct *user, struct mm_struct *mm, unsigned long count)
{
	atomic_long_sub(count, &user->locked_vm);
	atomic64_sub(count, &mm->pinned_vm);
}

static enum dma_data_direction tally_direction(const struct tally_user_pages *user)
{
	return user->write ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
}

/*
 * Pins the caller's own pages and counts them against RLIMIT_MEMLOCK (-ENOSPC beyond it). This can
 * take as long as the file system or the userfaultfd behind the memory takes to provide it.
 */
int tally_user_pin(u64 address, unsigned long count, bool write, struct tally_user_pages **out)
{
	unsigned int flags = FOLL_LONGTERM | (write ? FOLL_WRITE : 0);
	struct tally_user_pages *user;
	unsigned long done = 0;
	int ret;

	/* Checked before anything of the caller's size is allocated. */
	if (!access_ok((void __user *)address, (u64)count << PAGE_SHIFT))
		return -EFAULT;
	if (count > min_t(unsigned long, totalram_pages(), INT_MAX / sizeof(struct page *)))
		return -ENOSPC;
	user = kzalloc_obj(*user, GFP_KERNEL_ACCOUNT);
	if (!user)
		return -ENOMEM;
	user->user = get_uid(current_user());
	if (!tally_lock_pages(user->user, current->mm, count)) {
		ret = -ENOSPC;
		goto free_user;
	}
	user->pages = kvmalloc_array(count, sizeof(*user->pages), GFP_KERNEL_ACCOUNT);
	if (!user->pages) {
		ret = -ENOMEM;
		goto unlock;
	}
	while (done < count) {
		ret = pin_user_pages_fast(address + (done << PAGE_SHIFT), count - done, flags,
					  user->pages + done);
		if (ret <= 0) {
			ret = ret == -EINTR || ret == -ENOMEM ? ret : -EFAULT;
			goto unpin;
		}
		done += ret;
	}
	ret = sg_alloc_table_from_pages(&user->sgt, user->pages, count, 0,
					(u64)count << PAGE_SHIFT, GFP_KERNEL_ACCOUNT);
	if (ret)
		goto unpin;
	mmgrab(current->mm);
	user->mm = current->mm;
	user->write = write;
	user->count = count;
	*out = user;
	return 0;

unpin:
	unpin_user_pages(user->pages, done);
	kvfree(user->pages);
unlock:
	tally_unlock_pages(user->user, current->mm, count);
free_user:
	free_uid(user->user);
	kfree(user);
	return ret;
}

/*
 * Maps them for DMA, once. The processor and the device use the pages at the same time, without
 * calls that pass ownership between them, because DMA is always coherent here. For the same
 * reason a page may be mapped any number of times.
 */
int tally_user_map(struct tally_user_pages *user, struct device *dev)
{
	int ret = dma_map_sgtable(dev, &user->sgt, tally_direction(user),
				  DMA_ATTR_REQUIRE_COHERENT);

	if (!ret)
		user->dev = get_device(dev);
	return ret;
}

struct sg_table *tally_user_table(struct tally_user_pages *user)
{
	return &user->sgt;
}

struct page **tally_user_array(struct tally_user_pages *user)
{
	return user->pages;
}

void tally_user_unpin(struct tally_user_pages *user)
{
	if (user->dev) {
		dma_unmap_sgtable(user->dev, &user->sgt, tally_direction(user),
				  DMA_ATTR_REQUIRE_COHERENT);
		put_device(user->dev);
	}
	sg_free_table(&user->sgt);
	unpin_user_pages_dirty_lock(user->pages, user->count, user->write);
	tally_unlock_pages(user->user, user->mm, user->count);
	free_uid(user->user);
	mmdrop(user->mm);
	kvfree(user->pages);
	kfree(user);
}

/*
 * The files of VMs have a file system of their own, which is mounted nowhere. Files of the
 * system's anonymous inodes share an address space, and none of it may be executed, but kernels
 * of a GPU have to be.
 */
static int tally_fs_init(struct fs_context *fc)
{
	if (!init_pseudo(fc, TALLY_FS_MAGIC))
		return -ENOMEM;
	fc->s_iflags &= ~SB_I_NOEXEC;
	return 0;
}

static struct file_system_type tally_fs = {
	.owner = THIS_MODULE,
	.name = "tally",
	.init_fs_context = tally_fs_init,
	.kill_sb = kill_anon_super,
};

static struct vfsmount *tally_fs_mount;
static int tally_fs_users;

/* Keeps the file system, and the module, until tally_fs_unpin. Open files keep them longer. */
int tally_fs_pin(void)
{
	return simple_pin_fs(&tally_fs, &tally_fs_mount, &tally_fs_users);
}

void tally_fs_unpin(void)
{
	simple_release_fs(&tally_fs_mount, &tally_fs_users);
}

/*
 * A file with an inode of its own, so that its mappings can be found. On success it owns the data.
 * The caller has pinned the file system.
 */
struct file *tally_space_file(const struct file_operations *fops, void *data)
{
	struct inode *inode = alloc_anon_inode(tally_fs_mount->mnt_sb);
	struct file *file;

	if (IS_ERR(inode))
		return ERR_CAST(inode);
	/* The flag is for the kernel's own anonymous inodes, which must not be executed. */
	inode->i_flags &= ~S_ANON_INODE;
	if (!try_module_get(fops->owner)) {
		iput(inode);
		return ERR_PTR(-ENODEV);
	}
	file = alloc_file_pseudo(inode, tally_fs_mount, "[tally-vm]", O_RDWR, fops);
	if (IS_ERR(file)) {
		module_put(fops->owner);
		iput(inode);
		return file;
	}
	file->private_data = data;
	return file;
}

/* Unmaps pages from all mappings of the file. */
void tally_space_zap(struct file *file, u64 start, u64 bytes)
{
	unmap_mapping_range(file->f_mapping, start, bytes, 0);
}

/*
 * An area that shows bound pages: by faults, without references to the pages, and in this process
 * only.
 */
void tally_space_map(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
}

/*
 * Maps a page on a fault, with the access of the binding, even where the area would allow more: a
 * page that may be written is mapped writable at once, and any other is never made writable, see
 * pfn_mkwrite.
 */
vm_fault_t tally_space_show(struct vm_fault *vmf, unsigned int order, const struct tally_shown *at)
{
	struct vm_area_struct *vma = vmf->vma;
	bool write = at->write && (vma->vm_flags & VM_WRITE);
	struct page *page = at->pages ? READ_ONCE(at->pages[at->index]) : ZERO_PAGE(0);
	unsigned long pfn = page_to_pfn(page);

	if (((vmf->flags & FAULT_FLAG_WRITE) && !at->write) ||
	    ((vma->vm_flags & VM_EXEC) && !at->execute))
		return VM_FAULT_SIGBUS;
	if (!order)
		return vmf_insert_pfn_prot(vma, vmf->address, pfn,
					   write ? vm_get_page_prot(vma->vm_flags) :
						   vma->vm_page_prot);
#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
	if (order == PMD_ORDER && at->whole_folios) {
		const unsigned long pages = PMD_SIZE / PAGE_SIZE;
		unsigned long start = ALIGN_DOWN(vmf->address, PMD_SIZE);
		unsigned long within = (vmf->address - start) >> PAGE_SHIFT;

		if (start >= vma->vm_start && start + PMD_SIZE <= vma->vm_end &&
		    at->index - at->first >= within && at->end - at->index >= pages - within &&
		    (pfn & (pages - 1)) == within && folio_test_pmd_mappable(page_folio(page)))
			return vmf_insert_pfn_pmd(vmf, pfn - within, write);
	}
#endif
	return VM_FAULT_FALLBACK;
}

/*
 * Memory that the kernel and a process share. After it is freed here, its pages last as long as
 * they are mapped.
 */
void *tally_area_new(unsigned long bytes)
{
	return vmalloc_user(bytes);
}

int tally_area_map(struct vm_area_struct *vma, void *area)
{
	vm_flags_set(vma, VM_DONTCOPY);
	return remap_vmalloc_range(vma, area, vma->vm_pgoff);
}

void tally_area_free(void *area)
{
	vfree(area);
}

/* A page of it, with a reference. */
struct page *tally_area_page(void *area, unsigned long offset)
{
	struct page *page = vmalloc_to_page(area + offset);

	if (page)
		get_page(page);
	return page;
}

/*
 * Memory that is zero at first and allocated page by page, charged to the caller of this
 * function.
 */
struct tally_null *tally_null_new(unsigned long count)
{
	struct tally_null *null = kvzalloc(struct_size(null, pages, count),
					    GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

	if (null) {
		null->count = count;
		null->payer = get_mem_cgroup_from_mm(current->mm);
	}
	return null;
}

struct page **tally_null_pages(struct tally_null *null)
{
	return null->pages;
}

/* Allocates a page for an index. It fails rather than have processes of the cgroup killed. */
int tally_null_fill(struct tally_null *null, unsigned long index)
{
	struct mem_cgroup *before = set_active_memcg(null->payer);
	struct page *page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NORETRY |
				       __GFP_NOWARN);

	set_active_memcg(before);
	if (!page)
		return -ENOMEM;
	/* Another thread may have been faster. */
	if (cmpxchg(&null->pages[index], NULL, page))
		__free_page(page);
	return 0;
}

void tally_null_free(struct tally_null *null)
{
	unsigned long index;

	for (index = 0; index < null->count; index++) {
		if (null->pages[index])
			__free_page(null->pages[index]);
		cond_resched();
	}
	mem_cgroup_put(null->payer);
	kvfree(null);
}

/*
 * A point of a sync object, and the memory that it takes to add a fence there. Point 0 is the fence
 * of a binary sync object, which takes none.
 */
struct tally_point {
	struct drm_syncobj *syncobj;
	struct dma_fence_chain *chain;
	u64 point;
};

struct tally_point *tally_point_new(struct drm_file *file, u32 handle, u64 point)
{
	struct tally_point *new = kzalloc_obj(*new, GFP_KERNEL_ACCOUNT);

	if (!new)
		return ERR_PTR(-ENOMEM);
	new->point = point;
	if (point) {
		new->chain = dma_fence_chain_alloc();
		if (!new->chain) {
			kfree(new);
			return ERR_PTR(-ENOMEM);
		}
	}
	new->syncobj = drm_syncobj_find(file, handle);
	if (!new->syncobj) {
		dma_fence_chain_free(new->chain);
		kfree(new);
		return ERR_PTR(-ENOENT);
	}
	return new;
}

/*
 * Adds a fence that has signalled. It carries no error: a timeline forgets the fences of points
 * that have signalled, and with them their errors.
 */
void tally_point_signal(struct tally_point *at)
{
	struct dma_fence *fence = dma_fence_get_stub();

	if (at->chain) {
		drm_syncobj_add_point(at->syncobj, at->chain, fence, at->point);
		/* The sync object owns it now. */
		at->chain = NULL;
	} else {
		drm_syncobj_replace_fence(at->syncobj, fence);
	}
	dma_fence_put(fence);
}

void tally_point_free(struct tally_point *at)
{
	dma_fence_chain_free(at->chain);
	drm_syncobj_put(at->syncobj);
	kfree(at);
}

/*
 * The fence of a sync object, or at a point of a timeline. It must be there already: to wait until
 * there is one, the core would have the thread sleep.
 */
int tally_fence_of_point(struct drm_file *file, u32 handle, u64 point, struct dma_fence **out)
{
	return drm_syncobj_find_fence(file, handle, point, 0, out);
}

/*
 * 0: not signalled. 1: signalled. Otherwise signalled with that error. The chain of a timeline does
 * not take over the error of the fence that it contains.
 */
int tally_fence_status(struct dma_fence *fence)
{
	int status = dma_fence_get_status(fence);
	struct dma_fence *inner;

	if (status != 1)
		return status;
	inner = dma_fence_chain_contained(fence);
	return inner && dma_fence_is_signaled(inner) && inner->error ? inner->error : status;
}

void tally_fence_put(struct dma_fence *fence)
{
	dma_fence_put(fence);
}

/* A callback that can be taken back. The caller keeps the fence. */
struct tally_watch {
	struct dma_fence_cb cb;
	struct dma_fence *fence;
	void (*call)(void *data);
	void *data;
};

static void tally_watch_call(struct dma_fence *fence, struct dma_fence_cb *cb)
{
	struct tally_watch *watch = container_of(cb, struct tally_watch, cb);

	watch->call(watch->data);
}

struct tally_watch *tally_watch_new(struct dma_fence *fence, void (*call)(void *data), void *data)
{
	struct tally_watch *watch = kzalloc_obj(*watch, GFP_KERNEL_ACCOUNT);

	if (!watch)
		return ERR_PTR(-ENOMEM);
	watch->fence = fence;
	watch->call = call;
	watch->data = data;
	/* A fence that has signalled takes none: the caller asks for its status afterwards. */
	dma_fence_add_callback(fence, &watch->cb, tally_watch_call);
	return watch;
}

/* Takes the fence's lock, with which callbacks are called, so none runs afterwards. */
void tally_watch_end(struct tally_watch *watch)
{
	dma_fence_remove_callback(watch->fence, &watch->cb);
	kfree(watch);
}
