// What publishing costs, and what attaching costs beside the raw calls of the driver: an engine publishes weights, a
// neighbour attaches them, the engine is killed, and its next life attaches them. On the first GPU, or without one on a
// simulated device. Returns 0 if every byte was right.
//
//   publish [GIB]     default: 32 on a GPU, 1 without one; in handles of at most 1 GiB
#include <memsaver/memsaver.hpp>
#include <memsaver/share/share.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace memsaver;
using Clock = std::chrono::steady_clock;

struct Place {
    std::string folder;
    bool gpu = false;
    std::size_t gib = 0;

    [[nodiscard]] AnyDriver device() const {
        if (gpu) return CudaDriver{0};
        return HostDriver{(gib + 1) * 1_GiB, {.machine = "bench-publish"}};
    }
};

double milliseconds(Clock::time_point from) {
    return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

template <class Act>
double timed(Act&& act) {
    const auto from = Clock::now();
    act();
    return milliseconds(from);
}

double free_mib(const AnyDriver& device) {
    DeviceMemory memory;
    check(device.memory(memory), "query the memory");
    return static_cast<double>(memory.free_bytes) / static_cast<double>(1_MiB);
}

void fill(const AnyDriver& device, void* block, unsigned char byte, std::size_t bytes) {
    StreamRef stream;
    check(device.open_stream(stream), "open a stream");
    check(device.fill(reinterpret_cast<Address>(block), byte, bytes, stream), "fill");
    check(device.drain(), "drain");
    check(device.close_stream(stream), "close a stream");
}

/// Tells the parent that it has come so far, and waits to be killed.
[[noreturn]] void stay(int parent) {
    (void)std::fflush(stdout);
    (void)!::write(parent, "r", 1);
    for (;;) (void)::pause();
}

[[noreturn]] void engine(const Place& place, int parent) {
    const AnyDriver device = place.device();
    const Share share{device, {.name = "engine", .folder = place.folder}};
    MemorySaver<> saver{share.driver()};
    PublishOptions options{.version = "1", .names = {}};
    for (std::size_t i = 0; i < place.gib; ++i) {
        void* const block = saver.arena("weights").allocate(1_GiB);
        fill(device, block, static_cast<unsigned char>(i + 1), 1_GiB);
        options.names.push_back({"layer " + std::to_string(i), block, 1_GiB});
    }
    void* const scales = saver.arena("scales").allocate(64_KiB);
    fill(device, scales, 77, 64_KiB);
    options.names.push_back({"scales", scales, 64_KiB, PublishAccess::copied});
    std::printf("publish %zu GiB: %.1f ms\n", place.gib,
                timed([&] { share.publish("model", saver, "weights", options); }));
    stay(parent);
}

/// Reserves, imports, maps and allows, in the order of a resume.
double raw(const AnyDriver& device, const Place& place) {
    const detail::ShareFolder folder{"", place.folder};
    const detail::Keeper asking{folder, std::chrono::seconds{1}};
    const detail::Keeper::Kept kept = asking.get(asking.list().at(0).id);
    const detail::Manifest manifest = detail::Manifest::read(*kept);
    std::size_t bytes = 0;
    for (const std::uint64_t each : manifest.parts) bytes += each;
    Address address = 0;
    std::vector<PageHandle> handles(manifest.parts.size());
    const double spent = timed([&] {
        check(device.reserve(bytes, 2_MiB, address), "reserve");
        std::size_t done = 0;
        for (std::size_t i = 0; i < handles.size(); ++i) {
            check(device.import_pages(kept->descriptors[i + 1].get(), handles[i]), "import");
            check(device.map(address + done, manifest.parts[i], handles[i]), "map");
            done += manifest.parts[i];
        }
        check(device.allow_access(address, bytes, Rights::read), "allow access");
    });
    check(device.unmap(address, bytes), "unmap");
    for (const PageHandle each : handles) check(device.release(each), "release");
    check(device.unreserve(address, bytes), "unreserve");
    return spent;
}

[[noreturn]] void reader(const Place& place, const char* name, int parent) {
    const auto began = Clock::now();
    const AnyDriver device = place.device();
    const Share share{device, {.name = name, .folder = place.folder}};
    MemorySaver<> saver{share.driver()};
    (void)saver.arena("own").allocate(1_MiB);
    const double started = milliseconds(began);
    const double before = free_mib(device);
    std::vector<double> attach;
    std::vector<double> pause;
    std::vector<double> resume;
    std::vector<double> calls;
    double more = 0;
    double verify = 0;
    for (int round = 0; round < 5; ++round) {
        std::optional<Attached> model;
        attach.push_back(timed([&] { model.emplace(share.attach("model", saver)); }));
        if (round == 0) {
            more = before - free_mib(device);
            verify = timed([&] { model->verify(); });
        }
        pause.push_back(timed([&] { (void)saver.pause(model->tag()); }));
        resume.push_back(timed([&] { (void)saver.resume(model->tag()); }));
        calls.push_back(raw(device, place));
        if (round != 4) saver.drop(model->tag());
    }
    const double first = attach.front();
    const auto median = [](std::vector<double>& all) {
        std::sort(all.begin(), all.end());
        return all[all.size() / 2];
    };
    std::printf("%s: started %.1f ms; attach %.2f ms (the first %.2f), raw calls %.2f ms, ratio %.2f; pause %.2f ms, "
                "resume %.2f ms; verify %.1f ms; %.1f MiB of device memory more\n",
                name, started, median(attach), first, median(calls), median(attach) / median(calls), median(pause),
                median(resume), verify, more);
    stay(parent);
}

/// Runs `body` in a process; returns once that has come so far.
template <class Body>
pid_t start(Body body) {
    int ready[2];
    char byte = 0;
    if (::pipe(ready) != 0) std::exit(1);
    const pid_t process = ::fork();
    if (process == 0) {
        try {
            body(ready[1]);
        } catch (const std::exception& error) {
            (void)std::fprintf(stderr, "failed: %s\n", error.what());
            ::_exit(1);
        }
    }
    (void)::close(ready[1]);
    if (process < 0 || ::read(ready[0], &byte, 1) != 1) std::exit(1);
    (void)::close(ready[0]);
    return process;
}

} // namespace

int main(int count, char** arguments) {
    Place place;
    place.gpu = std::filesystem::exists("/dev/nvidiactl");
    place.gib = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : place.gpu ? 32 : 1;
    char folder[] = "/tmp/memsaver-publish-XXXXXX";
    if (::mkdtemp(folder) == nullptr || place.gib == 0) return 2;
    place.folder = folder;
    const auto kill = [](pid_t process) {
        (void)::kill(process, SIGKILL);
        (void)::waitpid(process, nullptr, 0);
    };
    const pid_t first = start([&](int parent) { engine(place, parent); });
    const pid_t neighbour = start([&](int parent) { reader(place, "neighbour", parent); });
    kill(first);
    const pid_t again = start([&](int parent) { reader(place, "next life, after SIGKILL", parent); });
    kill(neighbour);
    kill(again);
    std::filesystem::remove_all(place.folder);
    if (!place.gpu) (void)place.device(); // the last one removes the simulated device
    return 0;
}
