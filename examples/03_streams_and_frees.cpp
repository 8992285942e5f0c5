// When freed memory may be reused, and what a pause waits for: three choices for each.
#include <memsaver/memsaver.hpp>

#include <chrono>
#include <iostream>

using namespace memsaver;

namespace {

template <Driver D>
void run(const D& driver) {
    MemorySaver saver{driver};
    const Arena arena = saver.arena("activations");
    StreamRef stream; // a cudaStream_t or CUstream also works
    check(driver.open_stream(stream), "open a stream");

    void* a = arena.allocate(4_MiB);
    void* b = arena.allocate(4_MiB);
    void* c = arena.allocate(4_MiB);
    void* d = arena.allocate(4_MiB);
    for (void* block : {a, b}) {
        check(driver.fill(reinterpret_cast<Address>(block), 1, 4_MiB, stream), "fill");
    }
    arena.deallocate(a);               // reused after all work submitted so far, like cudaFree, but does not wait
    arena.deallocate(b, stream);       // reused after all work submitted to this stream so far
    arena.deallocate(c, already_idle); // reusable at once: no work uses it

    // d stays allocated. By default, pause waits for all work submitted to the device.
    std::cout << saver.pause() << '\n';
    saver.resume();

    // Waits for one stream, for at most one second. Use this form while another stream is being captured.
    check(driver.fill(reinterpret_cast<Address>(d), 2, 4_MiB, stream), "fill");
    try {
        std::cout << saver.pause("activations", {.order = after(stream), .timeout = std::chrono::seconds{1}}) << '\n';
        saver.resume();
    } catch (const NotIdle& busy) {
        std::cout << busy.what() << '\n';
    }

    // Waits for nothing: the program has already synchronized.
    check(driver.drain(), "wait for the device");
    std::cout << saver.pause("activations", {.order = already_idle}) << '\n';

    arena.deallocate(d); // a block of a paused tag can be freed
    std::cout << format_bytes(saver.bytes_to_resume("activations")) << " to resume: all blocks are deallocated\n";
    saver.close();
    check(driver.close_stream(stream), "close a stream");
}

} // namespace

int main() {
    with_default_driver([](auto driver) { run(driver); });
}
