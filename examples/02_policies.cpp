// What happens to the bytes of a paused tag: one policy per tag, an override for one pause, and poisoning to find
// errors.
#include <memsaver/memsaver.hpp>

#include <iostream>

using namespace memsaver;

namespace {

/// Returns the first byte of a block. Uses the driver's copies; any other way to copy works too.
template <Driver D>
unsigned first_byte(const D& driver, void* block) {
    unsigned char byte = 0;
    check(driver.copy_to_host(&byte, reinterpret_cast<Address>(block), 1, StreamRef{}), "copy a byte");
    check(driver.drain(), "wait for the device");
    return byte;
}

template <Driver D>
int run(const D& driver) {
    MemorySaver saver{driver};
    const Arena scratch = saver.arena("scratch", Zero{});                  // reads as zero after a resume
    const Arena cache = saver.arena("cache", Discard{});                   // undefined: the default for a new tag
    const Arena suspect = saver.arena("suspect", Discard{.poison = 0xDB}); // undefined: filled with 0xDB

    void* block = scratch.allocate(1_MiB);
    void* wrong = suspect.allocate(1_MiB);
    (void)cache.allocate(1_MiB);
    for (void* bytes : {block, wrong}) {
        check(driver.fill(reinterpret_cast<Address>(bytes), 7, 1_MiB, StreamRef{}), "fill");
    }

    saver.pause();
    std::cout << saver.usage();
    saver.resume();
    const unsigned zero = first_byte(driver, block);
    const unsigned poison = first_byte(driver, wrong);
    std::cout << "scratch reads " << zero << ", suspect reads " << poison << '\n';

    saver.pause("scratch", {.bytes = Discard{.poison = 0x11}}); // for this pause only
    saver.resume("scratch");
    const unsigned once = first_byte(driver, block);
    std::cout << "scratch, discarded once, reads " << once << '\n';

    try {
        (void)saver.arena("scratch", Discard{});
    } catch (const Misuse& misuse) {
        std::cout << "refused: " << misuse.what() << '\n';
    }
    return zero == 0 && poison == 0xDB && once == 0x11 ? 0 : 1;
}

} // namespace

int main() {
    return with_default_driver([](auto driver) { return run(driver); });
}
