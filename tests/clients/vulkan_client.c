// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Vulkan and Level Zero share memory as DMA-BUFs. Vulkan's driver is lavapipe, which runs on the processor and makes
// DMA-BUFs with udmabuf; any other with VK_EXT_external_memory_dma_buf would do.
//
// Prints a line for each direction. Ends with 0 if the bytes agree, and with 1 if not.

#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

static void stop(const char *what, long code)
{
    printf("%s: %ld\n", what, code);
    exit(1);
}

#define CHECK(call)                     \
    do {                                \
        long code_ = (long)(call);      \
        if (code_ != 0)                 \
            stop(#call, code_);         \
    } while (0)

enum { WORDS = 1 << 18 };
static const size_t size = 4 * WORDS;
#define DMA_BUF VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT

#define FUNCTIONS(F)                                                                                   \
    F(vkEnumeratePhysicalDevices) F(vkGetPhysicalDeviceProperties) F(vkCreateDevice)                   \
    F(vkGetPhysicalDeviceMemoryProperties)                                                             \
    F(vkGetPhysicalDeviceExternalBufferProperties) F(vkGetPhysicalDeviceExternalSemaphoreProperties)   \
    F(vkCreateBuffer) F(vkGetBufferMemoryRequirements) F(vkAllocateMemory) F(vkBindBufferMemory)       \
    F(vkMapMemory) F(vkGetMemoryFdKHR) F(vkCreateCommandPool) F(vkAllocateCommandBuffers)              \
    F(vkBeginCommandBuffer) F(vkEndCommandBuffer) F(vkCmdFillBuffer) F(vkCmdCopyBuffer)                \
    F(vkQueueSubmit) F(vkQueueWaitIdle) F(vkGetDeviceQueue)

#define DECLARE(name) static PFN_##name name;
FUNCTIONS(DECLARE)

static VkPhysicalDevice gpu;
static VkDevice device;
static VkQueue queue;
static VkCommandPool pool;

static void load_vulkan(void)
{
    void *library = dlopen("libvulkan.so.1", RTLD_NOW);
    if (!library)
        stop(dlerror(), 0);
    PFN_vkGetInstanceProcAddr find =
        (PFN_vkGetInstanceProcAddr)dlsym(library, "vkGetInstanceProcAddr");
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)find(NULL, "vkCreateInstance");
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                     .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &application};
    VkInstance instance;
    CHECK(create(&info, NULL, &instance));
#define LOAD(name) name = (PFN_##name)find(instance, #name);
    FUNCTIONS(LOAD)
    uint32_t count = 1;
    VkResult found = vkEnumeratePhysicalDevices(instance, &count, &gpu);
    if (found < 0 || count == 0)
        stop("vkEnumeratePhysicalDevices", found);
}

// What the driver can share.
static void describe(void)
{
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(gpu, &properties);
    VkPhysicalDeviceExternalBufferInfo buffer = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
        .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .handleType = DMA_BUF};
    VkExternalBufferProperties shared = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    vkGetPhysicalDeviceExternalBufferProperties(gpu, &buffer, &shared);
    VkExternalMemoryFeatureFlags features = shared.externalMemoryProperties.externalMemoryFeatures;
    printf("%s: DMA-BUFs%s%s", properties.deviceName,
           features & VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT ? " out" : "",
           features & VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT ? " in" : "");
    static const struct {
        VkSemaphoreType type;
        VkExternalSemaphoreHandleTypeFlagBits handle;
        const char *name;
    } kinds[] = {
        {VK_SEMAPHORE_TYPE_BINARY, VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT, "binary"},
        {VK_SEMAPHORE_TYPE_BINARY, VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT, "binary as sync files"},
        {VK_SEMAPHORE_TYPE_TIMELINE, VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT, "timelines"},
    };
    printf("; semaphores:");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = kinds[i].type};
        VkPhysicalDeviceExternalSemaphoreInfo info = {
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO,
            .pNext = &type,
            .handleType = kinds[i].handle};
        VkExternalSemaphoreProperties answer = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES};
        vkGetPhysicalDeviceExternalSemaphoreProperties(gpu, &info, &answer);
        printf(" %s %s%s", kinds[i].name, answer.externalSemaphoreFeatures ? "yes" : "no", i < 2 ? "," : "\n");
    }
}

static void open_device(void)
{
    float priority = 1;
    VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                      .queueCount = 1,
                                      .pQueuePriorities = &priority};
    const char *extensions[] = {"VK_KHR_external_memory_fd", "VK_EXT_external_memory_dma_buf"};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queues,
                               .enabledExtensionCount = 2,
                               .ppEnabledExtensionNames = extensions};
    CHECK(vkCreateDevice(gpu, &info, NULL, &device));
    vkGetDeviceQueue(device, 0, 0, &queue);
    VkCommandPoolCreateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    CHECK(vkCreateCommandPool(device, &commands, NULL, &pool));
}

// A buffer of Vulkan's, with its memory.
struct buffer {
    VkBuffer buffer;
    VkDeviceMemory memory;
};

static uint32_t memory_type(uint32_t allowed)
{
    VkPhysicalDeviceMemoryProperties all;
    vkGetPhysicalDeviceMemoryProperties(gpu, &all);
    for (uint32_t i = 0; i < all.memoryTypeCount; i++)
        if ((allowed >> i & 1) &&
            (all.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT))
            return i;
    stop("no memory type", allowed);
    return 0;
}

// `request` exports or imports the memory; NULL: neither.
static struct buffer make(const void *request)
{
    struct buffer made;
    VkExternalMemoryBufferCreateInfo shared = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = DMA_BUF};
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .pNext = request ? &shared : NULL,
        .size = size,
        .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    CHECK(vkCreateBuffer(device, &info, NULL, &made.buffer));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device, made.buffer, &needs);
    VkMemoryDedicatedAllocateInfo dedicated = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, .pNext = request, .buffer = made.buffer};
    VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .pNext = request ? &dedicated : NULL,
                                   .allocationSize = needs.size,
                                   .memoryTypeIndex = memory_type(needs.memoryTypeBits)};
    CHECK(vkAllocateMemory(device, &memory, NULL, &made.memory));
    CHECK(vkBindBufferMemory(device, made.buffer, made.memory, 0));
    return made;
}

// Fills a buffer with `value`, or with the content of `from`, and waits.
static void run(VkBuffer to, uint32_t value, VkBuffer from)
{
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = pool,
                                        .commandBufferCount = 1};
    VkCommandBuffer commands;
    CHECK(vkAllocateCommandBuffers(device, &info, &commands));
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    CHECK(vkBeginCommandBuffer(commands, &begin));
    VkBufferCopy all = {.size = size};
    if (from)
        vkCmdCopyBuffer(commands, from, to, 1, &all);
    else
        vkCmdFillBuffer(commands, to, 0, size, value);
    CHECK(vkEndCommandBuffer(commands));
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .commandBufferCount = 1,
                           .pCommandBuffers = &commands};
    CHECK(vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE));
    CHECK(vkQueueWaitIdle(queue));
}

static void expect(const char *where, const uint32_t *words, uint32_t value)
{
    for (int i = 0; i < WORDS; i++)
        if (words[i] != value) {
            printf("%s: word %d is %#x, not %#x\n", where, i, words[i], value);
            exit(1);
        }
}

static ze_device_handle_t ze_device;
static ze_context_handle_t context;
static ze_command_list_handle_t list;
// Memory that the host reads, of either side.
static uint32_t *ze_host;
static struct buffer vk_host;
static uint32_t *vk_words;

static void open_level_zero(void)
{
    uint32_t one = 1;
    ze_driver_handle_t driver;
    CHECK(zeInit(0));
    CHECK(zeDriverGet(&one, &driver));
    one = 1;
    CHECK(zeDeviceGet(driver, &one, &ze_device));
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    CHECK(zeContextCreate(driver, &desc, &context));
    ze_command_queue_desc_t commands = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                        .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    CHECK(zeCommandListCreateImmediate(context, ze_device, &commands, &list));
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    CHECK(zeMemAllocHost(context, &host, size, 0, (void **)&ze_host));
}

static void *ze_allocate(const void *request)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, .pNext = request};
    void *memory;
    CHECK(zeMemAllocDevice(context, &desc, size, 0, ze_device, &memory));
    return memory;
}

static void ze_fill(void *memory, uint32_t value)
{
    CHECK(zeCommandListAppendMemoryFill(list, memory, &value, sizeof value, size, NULL, 0, NULL));
}

// Each side writes `memory` and the other reads it. `shared` is Vulkan's buffer of it.
static void both_ways(void *memory, struct buffer shared)
{
    run(shared.buffer, 0x11111111, VK_NULL_HANDLE);
    CHECK(zeCommandListAppendMemoryCopy(list, ze_host, memory, size, NULL, 0, NULL));
    expect("Vulkan's words in Level Zero", ze_host, 0x11111111);
    ze_fill(memory, 0x22222222);
    run(vk_host.buffer, 0, shared.buffer);
    expect("Level Zero's words in Vulkan", vk_words, 0x22222222);
}

static void vulkans_memory(void)
{
    VkExportMemoryAllocateInfo request = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                          .handleTypes = DMA_BUF};
    struct buffer theirs = make(&request);
    VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                 .memory = theirs.memory,
                                 .handleType = DMA_BUF};
    int fd;
    CHECK(vkGetMemoryFdKHR(device, &info, &fd));
    ze_external_memory_import_fd_t import = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD,
                                             .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
                                             .fd = fd};
    void *memory = ze_allocate(&import);
    close(fd);
    both_ways(memory, theirs);
    CHECK(zeMemFree(context, memory));
    printf("Vulkan's memory in Level Zero: agrees\n");
}

static void level_zeros_memory(void)
{
    ze_device_external_memory_properties_t can = {.stype =
                                                      ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES};
    CHECK(zeDeviceGetExternalMemoryProperties(ze_device, &can));
    if (!(can.memoryAllocationExportTypes & ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF)) {
        printf("Level Zero's memory in Vulkan: this lane exports no DMA-BUFs\n");
        return;
    }
    ze_external_memory_export_desc_t request = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC,
                                                .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    void *memory = ze_allocate(&request);
    ze_external_memory_export_fd_t export = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD,
                                             .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
                                             .fd = -1};
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
                                                    .pNext = &export};
    CHECK(zeMemGetAllocProperties(context, memory, &properties, NULL));
    // Vulkan owns the descriptor afterwards.
    VkImportMemoryFdInfoKHR import = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
                                      .handleType = DMA_BUF,
                                      .fd = export.fd};
    both_ways(memory, make(&import));
    CHECK(zeMemFree(context, memory));
    printf("Level Zero's memory in Vulkan: agrees\n");
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_vulkan();
    describe();
    open_device();
    open_level_zero();
    vk_host = make(NULL);
    CHECK(vkMapMemory(device, vk_host.memory, 0, VK_WHOLE_SIZE, 0, (void **)&vk_words));
    vulkans_memory();
    level_zeros_memory();
    return 0;
}
