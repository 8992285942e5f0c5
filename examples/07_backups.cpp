// Contents that survive a pause: saved once, prepared ahead, readable while paused, and saved again after a change.
#include <memsaver/memsaver.hpp>

#include <algorithm>
#include <iostream>
#include <vector>

using namespace memsaver;

namespace {

constexpr std::size_t bytes = 16_MiB;

/// Uses the driver's fills and copies; any other way to write works too.
template <Driver D>
void write(const D& driver, void* block, unsigned char value) {
    check(driver.fill(reinterpret_cast<Address>(block), value, bytes, StreamRef{}), "fill");
    check(driver.drain(), "wait for the device");
}
template <Driver D>
bool reads(const D& driver, void* block, unsigned char value) {
    std::vector<unsigned char> seen(bytes);
    check(driver.copy_to_host(seen.data(), reinterpret_cast<Address>(block), bytes, StreamRef{}), "copy");
    check(driver.drain(), "wait for the device");
    return std::all_of(seen.begin(), seen.end(), [&](unsigned char byte) { return byte == value; });
}

template <Driver D>
int run(const D& driver) {
    MemorySaver saver{driver};
    const Arena arena = saver.arena("weights", HostBackup{.refresh = Refresh::once, .threads = 2});
    void* weights = arena.allocate(bytes);
    write(driver, weights, 1);

    saver.prepare("weights"); // allocates and pins the host memory; call it from any thread, long before the pause
    const Report first = saver.pause("weights");
    std::cout << "first: " << first << '\n';

    // While the tag is paused, its bytes can be read from the backup.
    const BackupView view = saver.backup_view(weights, bytes);
    const bool seen = view.size_bytes == bytes && view.data()[0] == std::byte{1};
    saver.resume("weights");
    const bool back = reads(driver, weights, 1);

    const Report second = saver.pause("weights"); // nothing new to save
    std::cout << "second: " << second << '\n';
    saver.resume("weights");

    write(driver, weights, 2); // a weight update ...
    saver.invalidate("weights");
    const Report third = saver.pause("weights"); // ... is saved, because invalidate reported it
    std::cout << "third, after invalidate: " << third << '\n';
    std::cout << saver.usage();
    saver.resume("weights");
    const bool updated = reads(driver, weights, 2);

    saver.pause("weights", {.bytes = Discard{}}); // the bytes are replaced anyway, so nothing is saved
    try {
        (void)saver.backup_view(weights, bytes);
    } catch (const Misuse& misuse) {
        std::cout << "refused: " << misuse.what() << '\n';
    }
    saver.resume("weights");

    const bool counts = first.saved_bytes >= bytes && second.saved_bytes == 0 && third.saved_bytes >= bytes;
    return seen && back && updated && counts ? 0 : 1;
}

} // namespace

int main() {
    return with_default_driver([](auto driver) { return run(driver); });
}
