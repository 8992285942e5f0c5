// Weights that outlive an engine: one process loads and publishes them, a neighbour attaches them, the first is killed,
// and its next life has them at once, from its neighbour.
#include <memsaver/memsaver.hpp>
#include <memsaver/share/share.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>

using namespace memsaver;

constexpr std::size_t tensor = 16_MiB;

HostDriver device_of(const std::string& folder) {
    return HostDriver{256_MiB, {.machine = folder.substr(folder.rfind('-'))}};
}

/// One life of an engine: attaches the weights, or loads and publishes them. Tells its parent, and computes until
/// killed.
[[noreturn]] void engine(const std::string& name, const std::string& folder, int parent) {
    const HostDriver device = device_of(folder);
    const Share share{device, {.name = name, .folder = folder}};
    MemorySaver<> saver{share.driver()};
    try {
        const Attached model = share.attach("model", saver);
        model.verify();
        saver.pause(model.tag()); // like any tag
        saver.resume(model.tag());
        const auto* const w = static_cast<const char*>(model.at("layer.1").data);
        *static_cast<float*>(model.at("scales").writable()) *= 2; // a copy of its own
        std::cout << name << ": attached; layer.1 begins with " << int{*w} << std::endl;
    } catch (const Unavailable&) {
        Arena weights = saver.arena("weights");
        PublishOptions options{.version = "2026-11", .names = {}};
        for (int i = 0; i < 4; ++i) {
            void* const layer = weights.allocate(tensor);
            std::memset(layer, i, tensor); // reads a file, say
            options.names.push_back({"layer." + std::to_string(i), layer, tensor});
        }
        auto* const scales = static_cast<float*>(saver.arena("scales").allocate(4_KiB));
        *scales = 1.5F;
        options.names.push_back({"scales", scales, 4_KiB, PublishAccess::copied});
        share.publish("model", saver, "weights", options);
        std::cout << name << ": loaded and published" << std::endl;
    }
    (void)!::write(parent, "r", 1);
    for (;;) (void)::pause();
}

int main() {
    char folder[] = "/tmp/memsaver-example-XXXXXX";
    if (::mkdtemp(folder) == nullptr) return 1;
    const auto start = [&](const char* name) {
        int ready[2];
        char byte = 0;
        if (::pipe(ready) != 0) std::exit(1);
        const pid_t process = ::fork();
        if (process == 0) engine(name, folder, ready[1]);
        (void)::close(ready[1]);
        if (process < 0 || ::read(ready[0], &byte, 1) != 1) std::exit(1);
        return process;
    };
    const auto kill = [](pid_t process) {
        if (::kill(process, SIGKILL) != 0 || ::waitpid(process, nullptr, 0) != process) std::exit(1);
    };
    const pid_t first = start("engine");
    const pid_t neighbour = start("neighbour");
    kill(first);
    kill(start("the engine's next life"));
    kill(neighbour);
    DeviceMemory memory;
    if (!device_of(folder).memory(memory).ok() || memory.free_bytes != memory.total_bytes) return 1;
    return std::filesystem::remove_all(folder) != 0 ? 0 : 1;
}
