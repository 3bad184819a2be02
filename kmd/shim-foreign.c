// SPDX-License-Identifier: GPL-2.0
/*
 * What shim.c is, for memory of other drivers: its dma-bufs. See raw/foreign.rs.
 */

#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>

#include <drm/drm_gem.h>
#include <drm/drm_gem_shmem_helper.h>
#include <drm/drm_prime.h>
#include <drm/drm_vma_manager.h>

#include "shim.h"

/* Takes a reference. Returns whether the dma-buf may be written by those who have its file. */
bool tally_foreign_get(struct dma_buf *buf)
{
	get_dma_buf(buf);
	return buf->file->f_mode & FMODE_WRITE;
}

bool tally_foreign_mappable(struct dma_buf *buf)
{
	return buf->ops->mmap;
}

/*
 * Whether mappings of a dma-buf have to begin with its first page: the shmem helper of DRM takes
 * the first page of an area for the first page of the buffer.
 */
bool tally_foreign_from_start(struct dma_buf *buf)
{
	struct drm_gem_object *obj = buf->priv;

	return buf->ops->mmap == drm_gem_dmabuf_mmap && obj->funcs &&
	       obj->funcs->vm_ops == &drm_gem_shmem_vm_ops;
}

/*
 * Has a new buffer stand for a dma-buf: it has no pages of its own, and its fences are those of the
 * dma-buf. It has no attachment, by which the core would know it as imported, because the device
 * attaches later, and on the host half never.
 */
void tally_foreign_adopt(struct drm_gem_object *obj, struct dma_buf *buf)
{
	fput(obj->filp);
	obj->filp = NULL;
	obj->resv = buf->resv;
}

/*
 * mmap of a buffer that stands for a dma-buf. The area is the exporter's from then on, and holds
 * the dma-buf instead of the buffer. See drm_gem_shmem_mmap().
 */
int tally_foreign_mmap(struct drm_gem_object *obj, struct dma_buf *buf, struct vm_area_struct *vma)
{
	unsigned long page = vma->vm_pgoff;
	int ret;

	/* An area of the render node. Those of the dma-buf's own file do not come here. */
	page -= drm_vma_node_start(&obj->vma_node);
	if (page && tally_foreign_from_start(buf))
		return -EOPNOTSUPP;
	vma->vm_private_data = NULL;
	vma->vm_ops = NULL;
	ret = dma_buf_mmap(buf, vma, page);
	if (ret)
		return ret;
	/* The core expects that of every driver, and not all exporters do it. */
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	drm_gem_object_put(obj);
	return 0;
}
