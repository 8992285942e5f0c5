// What publishing costs, and what attaching costs beside the raw calls of the driver: an engine publishes weights, a
// neighbour attaches them, the engine is killed, and its next life attaches them; without and with private copies of
// what is written in place. On the first GPU, or without one on a simulated device. Returns 0 if every byte was right.
//
//   publish [GIB]     default: 32 on a GPU, 1 without one; in handles of at most 1 GiB
#include "processes.hpp"

#include <optional>

namespace {

using namespace processes;

constexpr const char* shared = "model";
constexpr const char* with_copies = "model, with 64 KiB of private copies";
constexpr std::size_t copied_bytes = 64_KiB;

double free_mib(const AnyDriver& device) {
    return static_cast<double>(free_bytes(device)) / static_cast<double>(1_MiB);
}

/// Tells the parent that it has come so far, and waits to be killed.
[[noreturn]] void stay(int parent) {
    (void)std::fflush(stdout);
    (void)!::write(parent, "r", 1);
    for (;;) (void)::pause();
}

[[noreturn]] void engine(const Place& place, std::size_t gib, int parent) {
    const AnyDriver device = place.device();
    const Share share{device, {.name = "engine", .folder = place.folder}};
    MemorySaver<> saver{share.driver()};
    PublishOptions options{.version = "1", .names = {}};
    for (std::size_t i = 0; i < gib; ++i) {
        void* const block = saver.arena("weights").allocate(1_GiB);
        fill(device, reinterpret_cast<Address>(block), static_cast<unsigned char>(i + 1), 1_GiB);
        options.names.push_back({"layer " + std::to_string(i), block, 1_GiB});
    }
    std::printf("publish %zu GiB: %.1f ms\n", gib, timed([&] { share.publish(shared, saver, "weights", options); }));
    void* const scales = saver.arena("scales").allocate(copied_bytes);
    fill(device, reinterpret_cast<Address>(scales), 77, copied_bytes);
    options.names.push_back({"scales", scales, copied_bytes, PublishAccess::copied});
    share.publish(with_copies, saver, "weights", options);
    stay(parent);
}

/// Reserves, imports, maps and allows, in the order of a resume. For private copies: creates, maps, allows and copies.
double raw(const AnyDriver& device, const Place& place, const char* name) {
    const detail::ShareFolder folder{"", place.folder};
    const detail::Keeper asking{folder, std::chrono::seconds{1}};
    const auto rows = asking.list();
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const auto& each) { return name == std::string{each.name.data()}; });
    const detail::Keeper::Kept kept = asking.get(row->id);
    const detail::Manifest manifest = detail::Manifest::read(*kept);
    std::size_t bytes = 0;
    for (const std::uint64_t each : manifest.parts) bytes += each;
    const std::size_t copied = detail::align_up(manifest.copied, 2_MiB);
    Address address = 0;
    std::vector<PageHandle> handles(manifest.parts.size());
    const std::vector<char> host(manifest.copied);
    const double spent = timed([&] {
        check(device.reserve(bytes + copied, 2_MiB, address), "reserve");
        std::size_t done = 0;
        for (std::size_t i = 0; i < handles.size(); ++i) {
            check(device.import_pages(kept->descriptors[i + 1].get(), handles[i]), "import");
            check(device.map(address + done, manifest.parts[i], handles[i]), "map");
            done += manifest.parts[i];
        }
        check(device.allow_access(address, bytes, Rights::read), "allow access");
        if (copied == 0) return;
        check(device.create(copied, handles.emplace_back()), "create");
        check(device.map(address + bytes, copied, handles.back()), "map");
        check(device.allow_access(address + bytes, copied, Rights::read_write), "allow access");
        StreamRef stream;
        check(device.open_stream(stream), "open a stream");
        check(device.copy_to_device(address + bytes, host.data(), host.size(), stream), "copy");
        check(device.drain(), "wait for the device");
        check(device.close_stream(stream), "close a stream");
    });
    check(device.unmap(address, bytes), "unmap");
    if (copied != 0) check(device.unmap(address + bytes, copied), "unmap");
    for (const PageHandle each : handles) check(device.release(each), "release");
    check(device.unreserve(address, bytes + copied), "unreserve");
    return spent;
}

void measure(const AnyDriver& device, const Place& place, const Share& share, MemorySaver<>& saver, const char* name) {
    const double before = free_mib(device);
    std::vector<double> attach;
    std::vector<double> pause;
    std::vector<double> resume;
    std::vector<double> calls;
    double more = 0;
    double verify = 0;
    for (int round = 0; round < 9; ++round) {
        std::optional<Attached> model;
        attach.push_back(timed([&] { model.emplace(share.attach(name, saver)); }));
        if (round == 0) {
            more = before - free_mib(device);
            verify = timed([&] { model->verify(); });
        }
        pause.push_back(timed([&] { (void)saver.pause(model->tag()); }));
        resume.push_back(timed([&] { (void)saver.resume(model->tag()); }));
        saver.drop(model->tag());
        calls.push_back(raw(device, place, name));
    }
    const double first = attach.front();
    std::printf("  %s: attach %.2f ms (the first %.2f), raw calls %.2f ms, ratio %.2f; pause %.2f ms, resume %.2f ms; "
                "verify %.1f ms; %.1f MiB of device memory more\n",
                name, median(attach), first, median(calls), median(attach) / median(calls), median(pause),
                median(resume), verify, more);
}

[[noreturn]] void reader(const Place& place, const char* name, int parent) {
    const double began = milliseconds();
    const AnyDriver device = place.device();
    const Share share{device, {.name = name, .folder = place.folder}};
    MemorySaver<> saver{share.driver()};
    (void)saver.arena("own").allocate(1_MiB);
    std::printf("%s: started %.1f ms\n", name, milliseconds() - began);
    measure(device, place, share, saver, shared);
    measure(device, place, share, saver, with_copies);
    const Attached kept = share.attach(shared, saver);
    stay(parent);
}

/// Runs `body` in a process; returns once that has come so far.
template <class Body>
pid_t start_and_wait(Body body) {
    int ready[2];
    char byte = 0;
    if (::pipe(ready) != 0) std::exit(1);
    const pid_t process = start([&] { body(ready[1]); });
    (void)::close(ready[1]);
    if (process < 0 || ::read(ready[0], &byte, 1) != 1) std::exit(1);
    (void)::close(ready[0]);
    return process;
}

} // namespace

int main(int count, char** arguments) {
    std::size_t gib = std::filesystem::exists("/dev/nvidiactl") ? 32 : 1;
    if (count > 1) gib = std::strtoul(arguments[1], nullptr, 10);
    const Place place{(gib + 1) * 1_GiB};
    const pid_t first = start_and_wait([&](int parent) { engine(place, gib, parent); });
    const pid_t neighbour = start_and_wait([&](int parent) { reader(place, "neighbour", parent); });
    kill(first);
    const pid_t again = start_and_wait([&](int parent) { reader(place, "next life, after SIGKILL", parent); });
    kill(neighbour);
    kill(again);
    return 0;
}
