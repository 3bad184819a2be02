/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions of shim.c and shim-foreign.c for raw/, which declares them once more for Rust.
 * The prototypes here only let the compiler check the C files.
 */
#ifndef _TALLY_SHIM_H_
#define _TALLY_SHIM_H_

#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/types.h>
#include <linux/wait.h>

#include <drm/drm_gem.h>

struct drm_device;
struct drm_file;
struct file_operations;
struct pci_dev;

void tally_waiter_init(struct wait_queue_head *queue);
int tally_waiter_sleep(struct wait_queue_head *queue, const u32 *woken, s64 deadline, bool killable,
		       bool freezable);
void tally_waiter_wake(struct wait_queue_head *queue, u32 *woken);
u64 tally_memory_bytes(void);
u32 tally_current_user(void);
int tally_reset_function(struct pci_dev *pdev);

/*
 * The driver's callbacks for when PCI has found an error, is about to take power or state, and has
 * given it back.
 */
struct tally_power {
	void (*halt)(struct pci_dev *pdev);
	void (*pause)(struct pci_dev *pdev);
	void (*go_on)(struct pci_dev *pdev);
};

void tally_handle_power(struct pci_dev *pdev, const struct tally_power *power);
int tally_huge_pages(struct drm_device *drm);
void *tally_page_address(struct page *page);
int tally_fill_buffer(struct drm_gem_object *obj);
int tally_pin_buffer(struct drm_gem_object *obj);
struct page *tally_buffer_page(struct drm_gem_object *obj, unsigned long index);
enum drm_gem_object_status tally_buffer_status(struct drm_gem_object *obj);
void tally_put_page(struct page *page);
void tally_dirty_page(struct page *page);
int tally_mmap(struct file *file, struct vm_area_struct *vma);
vm_fault_t tally_fault(struct vm_fault *vmf);
vm_fault_t tally_huge_fault(struct vm_fault *vmf, unsigned int order);

struct dma_buf;

bool tally_foreign_get(struct dma_buf *buf);
bool tally_foreign_mappable(struct dma_buf *buf);
bool tally_foreign_from_start(struct dma_buf *buf);
void tally_foreign_adopt(struct drm_gem_object *obj, struct dma_buf *buf);
int tally_foreign_mmap(struct drm_gem_object *obj, struct dma_buf *buf, struct vm_area_struct *vma);

/* The binding at a page of a VM. */
struct tally_shown {
	/* The pages of the memory behind the binding; NULL: zeros. */
	struct page *const *pages;
	/*
	 * The wanted page, and the pages of the binding, which are contiguous there and in the
	 * VM.
	 */
	unsigned long index;
	unsigned long first;
	unsigned long end;
	bool write;
	bool execute;
	/* Pages of one folio are in the order of the folio. */
	bool whole_folios;
};

#define TALLY_FS_MAGIC 0x54414c59 /* "TALY" */

int tally_fs_pin(void);
void tally_fs_unpin(void);
struct file *tally_space_file(const struct file_operations *fops, void *data);
void tally_space_zap(struct file *file, u64 start, u64 bytes);
void tally_space_map(struct vm_area_struct *vma);
vm_fault_t tally_space_show(struct vm_fault *vmf, unsigned int order, const struct tally_shown *at);
void *tally_area_new(unsigned long bytes);
int tally_area_map(struct vm_area_struct *vma, void *area);
void tally_area_free(void *area);
struct page *tally_area_page(void *area, unsigned long offset);

struct tally_null {
	struct mem_cgroup *payer;
	unsigned long count;
	struct page *pages[];
};

struct tally_null *tally_null_new(unsigned long count);
struct page **tally_null_pages(struct tally_null *null);
int tally_null_fill(struct tally_null *null, unsigned long index);
void tally_null_free(struct tally_null *null);

struct tally_user_pages {
	struct device *dev;
	struct user_struct *user;
	struct mm_struct *mm;
	struct page **pages;
	unsigned long count;
	bool write;
	struct sg_table sgt;
};

int tally_user_pin(u64 address, unsigned long count, bool write, struct tally_user_pages **out);
int tally_user_map(struct tally_user_pages *user, struct device *dev);
struct sg_table *tally_user_table(struct tally_user_pages *user);
struct page **tally_user_array(struct tally_user_pages *user);
void tally_user_unpin(struct tally_user_pages *user);

struct tally_point;

struct tally_point *tally_point_new(struct drm_file *file, u32 handle, u64 point);
void tally_point_signal(struct tally_point *at);
void tally_point_free(struct tally_point *at);

struct dma_fence;
struct tally_watch;

int tally_fence_of_point(struct drm_file *file, u32 handle, u64 point, struct dma_fence **out);
int tally_fence_status(struct dma_fence *fence);
void tally_fence_put(struct dma_fence *fence);
struct tally_watch *tally_watch_new(struct dma_fence *fence, void (*call)(void *data), void *data);
void tally_watch_end(struct tally_watch *watch);

#endif /* _TALLY_SHIM_H_ */
