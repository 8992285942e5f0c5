// When may freed memory be used again, and what does a pause wait for? Three answers each.
#include <memsaver/memsaver.hpp>

#include <chrono>
#include <iostream>

using namespace memsaver;

namespace {

template <Driver D>
void run(const D& driver) {
    MemorySaver saver{driver};
    const Arena arena = saver.arena("activations");
    StreamRef stream; // a cudaStream_t or CUstream does as well
    check(driver.open_stream(stream), "open a stream");

    void* a = arena.allocate(4_MiB);
    void* b = arena.allocate(4_MiB);
    void* c = arena.allocate(4_MiB);
    void* d = arena.allocate(4_MiB);
    for (void* block : {a, b}) {
        check(driver.fill(reinterpret_cast<Address>(block), 1, 4_MiB, stream), "fill");
    }
    arena.deallocate(a);               // after whatever the device was given so far, as cudaFree, but without its wait
    arena.deallocate(b, stream);       // once this stream has passed here
    arena.deallocate(c, already_idle); // at once: nothing touches it

    // d stays. By default a pause waits for all that the device was given.
    std::cout << saver.pause() << '\n';
    saver.resume();

    // For one stream, as long as a second; while another stream is being captured, this is the form to use.
    check(driver.fill(reinterpret_cast<Address>(d), 2, 4_MiB, stream), "fill");
    try {
        std::cout << saver.pause("activations", {.order = after(stream), .timeout = std::chrono::seconds{1}}) << '\n';
        saver.resume();
    } catch (const NotIdle& busy) {
        std::cout << busy.what() << '\n';
    }

    // For nothing: the program has waited itself.
    check(driver.drain(), "wait for the device");
    std::cout << saver.pause("activations", {.order = already_idle}) << '\n';

    arena.deallocate(d); // a block of a paused tag
    std::cout << format_bytes(saver.bytes_to_resume("activations")) << " to resume, now that no block is left\n";
    saver.close();
    check(driver.close_stream(stream), "close a stream");
}

} // namespace

int main() {
    with_default_driver([](auto driver) { run(driver); });
}
