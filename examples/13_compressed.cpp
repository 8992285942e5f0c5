// Backups that need less memory: bytes are compressed on the device, losslessly, before they are copied off it.
#include <memsaver/backup/compressed.hpp>
#include <memsaver/memsaver.hpp>

#include <cstdlib>
#include <iostream>
#include <vector>

using namespace memsaver;

namespace {

constexpr std::size_t bytes = 16_MiB;

template <Driver D>
int run(const D& driver) {
    MemorySaver saver{driver};
    void* weights = nullptr;
    try {
        const Arena packed =
            saver.arena("packed", Compressed<HostBackup>{}); // or Compressed<FileBackup>{{.directory = ...}}
        weights = packed.allocate(bytes);
    } catch (const Unavailable& missing) { // no nvCOMP; the message says how to install it
        std::cout << missing.what() << '\n';
        return EXIT_SUCCESS;
    }
    const auto address = reinterpret_cast<Address>(weights);
    std::vector<unsigned short> content(bytes / 2);
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<unsigned short>(0x3C00 + i / 64 % 600);
    check(driver.copy_to_device(address, content.data(), bytes, StreamRef{}), "copy");
    check(driver.drain(), "wait for the device");

    saver.prepare("packed"); // allocates host memory for 0.7 of the bytes, and scratch memory on the device
    std::cout << saver.pause("packed") << '\n';
    const std::size_t kept = saver.usage().begin()->backed_up_bytes;
    std::cout << format_bytes(kept) << " kept for " << format_bytes(bytes) << "; a resume needs "
              << format_bytes(saver.bytes_to_resume("packed")) << " of device memory\n";
    std::cout << saver.resume("packed") << '\n';

    std::vector<unsigned short> back(bytes / 2);
    check(driver.copy_to_host(back.data(), address, bytes, StreamRef{}), "copy");
    check(driver.drain(), "wait for the device");
    std::cout << (back == content ? "all bytes restored\n" : "the restored bytes differ\n");
    return back == content && kept < bytes ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main() {
    return with_default_driver([](const auto& driver) { return run(driver); });
}
