// SPDX-License-Identifier: MIT OR Apache-2.0
// A SYCL program in C++, compiled by plain g++; it loads its kernels as SPIR-V modules.
//
//     sycl_client FOLDER      FOLDER holds the SPIR-V of tests/kernels
//
// One line per check; an exit status of 1 if any failed.
#include <sycl/sycl.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace ex = sycl::ext::oneapi::experimental;

using Words = std::vector<uint32_t>;

void require(bool holds, const char *what)
{
    if (!holds)
        throw std::runtime_error(what);
}

struct Client {
    std::string folder;
    sycl::device device{sycl::gpu_selector_v};
    sycl::context context{device};

    sycl::queue in_order() const
    {
        return {context, device, sycl::property::queue::in_order{}};
    }

    sycl::kernel kernel(const std::string &module, const std::string &name) const
    {
        std::ifstream file(folder + "/" + module + ".spv", std::ios::binary);
        require(file.good(), "a module cannot be read");
        std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
        std::vector<std::byte> code(text.size());
        std::memcpy(code.data(), text.data(), text.size());
        auto source = ex::create_kernel_bundle_from_source(context, ex::source_language::spirv, code);
        return ex::build(source).ext_oneapi_get_kernel(name);
    }
};

// x = x * factor + term repeatedly: any two steps in another order give another result.
void chain(const Client &client, sycl::queue queue, bool explicit_order)
{
    const uint32_t n = 1000;
    auto kernel = client.kernel("chain", "chain");
    auto *data = sycl::malloc_device<uint32_t>(n, queue);
    Words start(n), found(n);
    std::iota(start.begin(), start.end(), 0u);
    Words expected = start;
    sycl::event last = queue.memcpy(data, start.data(), n * sizeof(uint32_t));
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t factor = 2 * i + 3, term = 7 * i + 1;
        last = queue.submit([&](sycl::handler &handler) {
            if (explicit_order)
                handler.depends_on(last);
            handler.set_args(data, factor, term, n);
            handler.parallel_for(sycl::nd_range<1>{1000, 100}, kernel);
        });
        for (auto &value : expected)
            value = value * factor + term;
    }
    last.wait_and_throw();
    queue.memcpy(found.data(), data, n * sizeof(uint32_t)).wait_and_throw();
    sycl::free(data, queue);
    require(found == expected, "the steps ran in another order");
}

void kinds_of_memory(const Client &client)
{
    auto queue = client.in_order();
    auto kernel = client.kernel("saxpy", "saxpy");
    const uint32_t n = 5000;
    for (auto kind : {sycl::usm::alloc::device, sycl::usm::alloc::shared, sycl::usm::alloc::host}) {
        auto *x = sycl::malloc<float>(n, queue, kind), *y = sycl::malloc<float>(n, queue, kind);
        require(sycl::get_pointer_type(x, client.context) == kind, "memory of another kind");
        std::vector<float> found(n), twos(n, 2.0f);
        queue.memcpy(x, twos.data(), n * sizeof(float));
        queue.memset(y, 0, n * sizeof(float));
        queue.submit([&](sycl::handler &handler) {
            handler.set_args(3.0f, x, y, n);
            handler.parallel_for(sycl::range<1>{n}, kernel);
        });
        queue.memcpy(found.data(), y, n * sizeof(float)).wait_and_throw();
        require(found == std::vector<float>(n, 6.0f), "a wrong sum");
        sycl::free(x, queue);
        sycl::free(y, queue);
    }
}

// Kernels use a vector and the stack directly, if the device reports that they can.
void system_memory(const Client &client)
{
    if (!client.device.has(sycl::aspect::usm_system_allocations)) {
        const char *lane = std::getenv("TALLY_LANE");
        require(lane && std::string(lane) == "drm", "the device does not reach memory of the program");
        return;
    }
    const uint32_t n = 1000;
    auto queue = client.in_order();
    auto kernel = client.kernel("saxpy", "saxpy");
    std::vector<float> x(n, 2.0f);
    float y[n];
    std::fill(y, y + n, 1.0f);
    for (int round = 0; round < 3; round++) {
        queue.prefetch(x.data(), n * sizeof(float));
        queue.submit([&](sycl::handler &handler) {
            handler.set_args(3.0f, x.data(), static_cast<float *>(y), n);
            handler.parallel_for(sycl::nd_range<1>{1000, 100}, kernel);
        });
    }
    queue.wait_and_throw();
    require(std::all_of(y, y + n, [](float it) { return it == 19.0f; }), "a value is wrong");
}

void local_memory(const Client &client)
{
    sycl::queue queue{client.context, client.device};
    auto kernel = client.kernel("reduce", "reduce");
    const uint32_t n = 10000, group = 64;
    auto *data = sycl::malloc_shared<uint32_t>(n, queue), *sum = sycl::malloc_shared<uint32_t>(1, queue);
    std::iota(data, data + n, 0u);
    *sum = 0;
    queue.submit([&](sycl::handler &handler) {
        sycl::local_accessor<uint32_t, 1> partial{group, handler};
        handler.set_args(data, n, sum, partial);
        handler.parallel_for(sycl::nd_range<1>{(n + group - 1) / group * group, group}, kernel);
    }).wait_and_throw();
    uint32_t found = *sum;
    sycl::free(data, queue);
    sycl::free(sum, queue);
    require(found == n * (n - 1) / 2, "a wrong sum");
}

void buffers_and_accessors(const Client &client)
{
    sycl::queue queue{client.context, client.device};
    auto kernel = client.kernel("chain", "chain");
    Words data(777, 5);
    {
        sycl::buffer<uint32_t> buffer{data.data(), sycl::range<1>{data.size()}};
        for (uint32_t i = 0; i < 10; i++)
            queue.submit([&](sycl::handler &handler) {
                sycl::accessor access{buffer, handler, sycl::read_write};
                handler.set_args(access, 3u, 1u, static_cast<uint32_t>(data.size()));
                handler.parallel_for(sycl::range<1>{data.size()}, kernel);
            });
    }
    uint32_t expected = 5;
    for (int i = 0; i < 10; i++)
        expected = expected * 3 + 1;
    require(data == Words(777, expected), "the buffer holds something else");
}

void host_tasks(const Client &client)
{
    sycl::queue queue{client.context, client.device};
    auto kernel = client.kernel("chain", "chain");
    const uint32_t n = 64;
    auto *data = sycl::malloc_shared<uint32_t>(n, queue);
    std::fill(data, data + n, 1u);
    auto launch = [&](sycl::event after) {
        return queue.submit([&](sycl::handler &handler) {
            handler.depends_on(after);
            handler.set_args(data, 2u, 1u, n);
            handler.parallel_for(sycl::range<1>{n}, kernel);
        });
    };
    auto first = launch({});
    auto host = queue.submit([&](sycl::handler &handler) {
        handler.depends_on(first);
        handler.host_task([=] { for (uint32_t i = 0; i < n; i++) data[i] += i; });
    });
    launch(host).wait_and_throw();
    bool right = true;
    for (uint32_t i = 0; i < n; i++)
        right = right && data[i] == (3 + i) * 2 + 1;
    sycl::free(data, queue);
    require(right, "kernel, host task, kernel: in another order");
}

void profiling(const Client &client)
{
    sycl::queue queue{client.context, client.device, sycl::property::queue::enable_profiling{}};
    auto kernel = client.kernel("chain", "chain");
    const uint32_t n = 1 << 18;
    auto *data = sycl::malloc_device<uint32_t>(n, queue);
    queue.memset(data, 0, n * sizeof(uint32_t)).wait();
    auto event = queue.submit([&](sycl::handler &handler) {
        handler.set_args(data, 2u, 1u, n);
        handler.parallel_for(sycl::range<1>{n}, kernel);
    });
    event.wait_and_throw();
    using namespace sycl::info::event_profiling;
    uint64_t submit = event.get_profiling_info<command_submit>();
    uint64_t start = event.get_profiling_info<command_start>();
    uint64_t end = event.get_profiling_info<command_end>();
    sycl::free(data, queue);
    require(submit <= start && start < end, "the times are in no order");
    require(end - start > 1000 && end - start < 10'000'000'000, "an unlikely duration");
}

void regions(const Client &client)
{
    auto queue = client.in_order();
    const size_t pitch = 64, width = 40, height = 30;
    std::vector<uint8_t> source(pitch * height), found(width * height);
    std::iota(source.begin(), source.end(), uint8_t{0});
    auto *device = sycl::malloc_device<uint8_t>(pitch * height, queue);
    queue.ext_oneapi_memcpy2d(device, pitch, source.data(), pitch, width, height);
    queue.ext_oneapi_memcpy2d(found.data(), width, device, pitch, width, height).wait_and_throw();
    sycl::free(device, queue);
    bool right = true;
    for (size_t i = 0; i < found.size(); i++)
        right = right && found[i] == source[i / width * pitch + i % width];
    require(right, "a wrong byte");
}

void barriers_and_priorities(const Client &client)
{
    namespace property = sycl::ext::oneapi::property::queue;
    sycl::queue low{client.context, client.device, property::priority_low{}};
    sycl::queue high{client.context, client.device, property::priority_high{}};
    auto kernel = client.kernel("chain", "chain");
    const uint32_t n = 256;
    auto *data = sycl::malloc_shared<uint32_t>(2 * n, low);
    std::fill(data, data + 2 * n, 1u);
    auto launch = [&](sycl::queue &queue, uint32_t *part, uint32_t factor) {
        queue.submit([&](sycl::handler &handler) {
            handler.set_args(part, factor, 1u, n);
            handler.parallel_for(sycl::range<1>{n}, kernel);
        });
    };
    launch(low, data, 2);
    launch(low, data + n, 3);
    auto joined = low.ext_oneapi_submit_barrier();
    high.ext_oneapi_submit_barrier({joined});
    launch(high, data, 5);
    launch(high, data + n, 7);
    high.wait_and_throw();
    bool right = true;
    for (uint32_t i = 0; i < n; i++)
        right = right && data[i] == 3 * 5 + 1 && data[n + i] == 4 * 7 + 1;
    sycl::free(data, low);
    require(right, "a barrier was passed");
}

void graphs(const Client &client, const sycl::property_list &properties)
{
    sycl::queue queue = client.in_order();
    auto kernel = client.kernel("chain", "chain");
    const uint32_t n = 100;
    auto *data = sycl::malloc_device<uint32_t>(n, queue);
    queue.memset(data, 0, n * sizeof(uint32_t)).wait();
    ex::command_graph graph{client.context, client.device, properties};
    graph.begin_recording(queue);
    for (uint32_t factor : {3u, 5u, 7u})
        queue.submit([&](sycl::handler &handler) {
            handler.set_args(data, factor, 1u, n);
            handler.parallel_for(sycl::range<1>{n}, kernel);
        });
    graph.end_recording();
    auto executable = graph.finalize();
    Words found(n);
    uint32_t expected = 0;
    for (int run = 0; run < 20; run++) {
        queue.ext_oneapi_graph(executable);
        expected = ((expected * 3 + 1) * 5 + 1) * 7 + 1;
    }
    queue.memcpy(found.data(), data, n * sizeof(uint32_t)).wait_and_throw();
    sycl::free(data, queue);
    require(found == Words(n, expected), "an execution is missing or out of order");
}

void updates(const Client &client)
{
    sycl::queue queue = client.in_order();
    auto kernel = client.kernel("chain", "chain");
    const uint32_t n = 100;
    auto *one = sycl::malloc_device<uint32_t>(n, queue);
    auto *two = sycl::malloc_device<uint32_t>(n, queue);
    queue.memset(one, 0, n * sizeof(uint32_t)).wait();
    queue.memset(two, 0, n * sizeof(uint32_t)).wait();
    ex::command_graph graph{client.context, client.device};
    ex::dynamic_parameter<uint32_t *> to(one);
    auto node = graph.add([&](sycl::handler &handler) {
        handler.set_arg(0, to);
        handler.set_arg(1, 3u);
        handler.set_arg(2, 1u);
        handler.set_arg(3, n);
        handler.parallel_for(sycl::range<1>{n}, kernel);
    });
    auto executable = graph.finalize(ex::property::graph::updatable{});
    queue.ext_oneapi_graph(executable).wait();
    to.update(two);
    executable.update(node);
    for (int run = 0; run < 3; run++)
        queue.ext_oneapi_graph(executable).wait();
    Words a(n), b(n);
    queue.memcpy(a.data(), one, n * sizeof(uint32_t)).wait_and_throw();
    queue.memcpy(b.data(), two, n * sizeof(uint32_t)).wait_and_throw();
    sycl::free(one, queue);
    sycl::free(two, queue);
    require(a == Words(n, 1) && b == Words(n, 13), "an execution has another argument");
}

void broken_modules(const Client &client)
{
    std::vector<std::byte> code(64);
    try {
        auto source = ex::create_kernel_bundle_from_source(client.context, ex::source_language::spirv, code);
        ex::build(source);
    } catch (const sycl::exception &) {
        return;
    }
    throw std::runtime_error("it was accepted");
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: sycl_client FOLDER\n");
        return 2;
    }
    int failed = 0;
    auto check = [&failed](const char *name, const std::function<void()> &body) {
        std::string verdict = "ok";
        try {
            body();
        } catch (const std::exception &error) {
            failed++;
            verdict = std::string("FAILED: ") + error.what();
        }
        std::printf("  %-48s %s\n", name, verdict.c_str());
        std::fflush(stdout);
    };
    try {
        Client client{argv[1]};
        check("in-order queue", [&] { chain(client, client.in_order(), false); });
        check("out-of-order queue", [&] { chain(client, {client.context, client.device}, true); });
        check("device, shared and host memory", [&] { kinds_of_memory(client); });
        check("memory of the program", [&] { system_memory(client); });
        check("local memory as an argument", [&] { local_memory(client); });
        check("buffers and accessors", [&] { buffers_and_accessors(client); });
        check("host tasks between kernels", [&] { host_tasks(client); });
        check("profiling", [&] { profiling(client); });
        check("regions of memory", [&] { regions(client); });
        check("barriers, queues with priorities", [&] { barriers_and_priorities(client); });
        check("command graphs", [&] { graphs(client, {}); });
        // The first adapter can only record graphs by itself.
        const char *second = std::getenv("UR_LOADER_USE_LEVEL_ZERO_V2");
        if (second && std::string(second) == "1")
            check("command graphs that the driver records", [&] {
                graphs(client, {ex::property::graph::enable_native_recording{}});
            });
        check("command graphs that are changed", [&] { updates(client); });
        check("a broken module is refused", [&] { broken_modules(client); });
    } catch (const std::exception &error) {
        std::printf("  %s\n", error.what());
        return 1;
    }
    return failed != 0;
}
