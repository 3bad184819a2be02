// SPDX-License-Identifier: GPL-2.0
/*
 * What Rust cannot call: macros, inline functions, and a few services that the
 * kernel crate has no bindings for. raw.rs declares and explains each.
 */

#include <linux/dma-mapping.h>
#include <linux/hrtimer.h>
#include <linux/dma-resv.h>
#include <linux/huge_mm.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_gem_shmem_helper.h>
#include <drm/drm_vma_manager.h>

/* The prototypes are for the compiler's check alone: raw.rs has the other side. */
void tally_waiter_init(struct wait_queue_head *queue);
int tally_waiter_sleep(struct wait_queue_head *queue, const u32 *woken, s64 deadline, bool killable);
void tally_waiter_wake(struct wait_queue_head *queue, u32 *woken);
u64 tally_memory_bytes(void);
int tally_reset_function(struct pci_dev *pdev);
int tally_huge_pages(struct drm_device *drm);
void *tally_page_address(struct page *page);
int tally_mmap(struct file *file, struct vm_area_struct *vma);
vm_fault_t tally_fault(struct vm_fault *vmf);
vm_fault_t tally_huge_fault(struct vm_fault *vmf, unsigned int order);

struct tally_user_pages {
	struct device *dev;
	struct mm_struct *mm;
	struct page **pages;
	unsigned long count;
	bool write;
	struct sg_table sgt;
};

int tally_user_pin(struct device *dev, u64 address, unsigned long count, bool write,
		   struct tally_user_pages **out);
struct sg_table *tally_user_table(struct tally_user_pages *user);
void tally_user_unpin(struct tally_user_pages *user);

void tally_waiter_init(struct wait_queue_head *queue)
{
	init_waitqueue_head(queue);
}

/*
 * Sleeps until *woken is not 0. -ETIME at the deadline (CLOCK_MONOTONIC ns),
 * -EINTR on a signal, or only on a fatal one.
 */
int tally_waiter_sleep(struct wait_queue_head *queue, const u32 *woken, s64 deadline, bool killable)
{
	unsigned int state = killable ? TASK_KILLABLE : TASK_INTERRUPTIBLE;
	ktime_t expires = ns_to_ktime(deadline);
	DEFINE_WAIT(wait);
	int ret;

	might_sleep();
	for (;;) {
		ret = prepare_to_wait_event(queue, &wait, state) ? -EINTR : 0;
		if (smp_load_acquire(woken)) {
			ret = 0;
			break;
		}
		if (ret)
			break;
		if (deadline == S64_MAX) {
			schedule();
		} else if (!schedule_hrtimeout_range(&expires, 50 * NSEC_PER_USEC, HRTIMER_MODE_ABS)) {
			ret = smp_load_acquire(woken) ? 0 : -ETIME;
			break;
		}
	}
	finish_wait(queue, &wait);
	return ret;
}

void tally_waiter_wake(struct wait_queue_head *queue, u32 *woken)
{
	smp_store_release(woken, 1);
	wake_up(queue);
}

u64 tally_memory_bytes(void)
{
	return (u64)totalram_pages() << PAGE_SHIFT;
}

/*
 * Function-level reset by PCI itself, for a device that ignores its own reset
 * register. The caller may hold the device lock, which pci_reset_function takes.
 */
int tally_reset_function(struct pci_dev *pdev)
{
	int ret;

	pci_save_state(pdev);
	ret = pcie_reset_flr(pdev, PCI_RESET_DO_RESET);
	pci_restore_state(pdev);
	return ret;
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
 * mmap of the render node. The core's finds a buffer by the offset of its first
 * page only; this one by that of any page, so that a part of it can be mapped.
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
		/* Without references it is being freed, and waits for our lock. */
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
 * A page of a mapped buffer, by its distance from the start of the buffer. The
 * helper's handlers go by the distance from the start of the area, which is
 * another one once the area was cut by munmap or mremap, or began further on.
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
	/* The area holds the pages, so they are there. */
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

		/* One huge page that lies in memory as it does in the area. */
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
 * Pins the caller's own pages for as long as the device maps them, counts them
 * against RLIMIT_MEMLOCK (-ENOSPC beyond it), and maps them for DMA.
 */
int tally_user_pin(struct device *dev, u64 address, unsigned long count, bool write,
		   struct tally_user_pages **out)
{
	unsigned int flags = FOLL_LONGTERM | (write ? FOLL_WRITE : 0);
	struct tally_user_pages *user;
	unsigned long done = 0;
	int ret;

	/* Before anything is made as large as the caller says. */
	if (!access_ok((void __user *)address, (u64)count << PAGE_SHIFT))
		return -EFAULT;
	if (count > min_t(unsigned long, totalram_pages(), INT_MAX / sizeof(struct page *)))
		return -ENOSPC;
	user = kzalloc(sizeof(*user), GFP_KERNEL);
	if (!user)
		return -ENOMEM;
	user->pages = kvmalloc_array(count, sizeof(*user->pages), GFP_KERNEL);
	if (!user->pages) {
		ret = -ENOMEM;
		goto free_user;
	}
	if (account_locked_vm(current->mm, count, true)) {
		ret = -ENOSPC;
		goto free_pages;
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
					(u64)count << PAGE_SHIFT, GFP_KERNEL);
	if (ret)
		goto unpin;
	ret = dma_map_sgtable(dev, &user->sgt, DMA_BIDIRECTIONAL, 0);
	if (ret)
		goto free_table;

	mmgrab(current->mm);
	user->mm = current->mm;
	user->dev = get_device(dev);
	user->count = count;
	user->write = write;
	*out = user;
	return 0;

free_table:
	sg_free_table(&user->sgt);
unpin:
	unpin_user_pages(user->pages, done);
	account_locked_vm(current->mm, count, false);
free_pages:
	kvfree(user->pages);
free_user:
	kfree(user);
	return ret;
}

struct sg_table *tally_user_table(struct tally_user_pages *user)
{
	return &user->sgt;
}

void tally_user_unpin(struct tally_user_pages *user)
{
	dma_unmap_sgtable(user->dev, &user->sgt, DMA_BIDIRECTIONAL, 0);
	sg_free_table(&user->sgt);
	unpin_user_pages_dirty_lock(user->pages, user->count, user->write);
	account_locked_vm(user->mm, user->count, false);
	mmdrop(user->mm);
	put_device(user->dev);
	kvfree(user->pages);
	kfree(user);
}
