// One arena with a saver of its own: its policy and driver are part of its type. For a component that pauses only its
// own memory.
#include <memsaver/memsaver.hpp>

#include <iostream>
#include <vector>

using namespace memsaver;

namespace {

/// The adapters of a model, paused while no request uses them.
template <Driver D>
class Adapters {
public:
    explicit Adapters(const D& driver) : arena_{driver, "adapters", Zero{}, {.capacity = 128_MiB}} {}

    void add(std::size_t bytes) { blocks_.push_back(arena_.allocate(bytes)); }
    void sleep() { std::cout << arena_.pause() << '\n'; }
    void wake() { std::cout << arena_.resume() << '\n'; }
    void drop_last() {
        arena_.deallocate(blocks_.back());
        blocks_.pop_back();
    }
    [[nodiscard]] ArenaUsage usage() const { return arena_.usage(); }

private:
    TaggedArena<D, Zero> arena_;
    std::vector<void*> blocks_;
};

} // namespace

int main() {
    with_default_driver([](auto driver) {
        Adapters adapters{driver};
        for (int i = 0; i < 8; ++i) adapters.add(3_MiB);
        adapters.sleep();
        adapters.drop_last(); // also works while the arena is paused
        adapters.wake();
        const ArenaUsage usage = adapters.usage();
        std::cout << usage.blocks << " blocks, " << format_bytes(usage.used_bytes) << " of "
                  << format_bytes(usage.mapped_bytes) << " mapped\n";
        try {
            adapters.add(1_GiB);
        } catch (const Misuse& misuse) {
            std::cout << "refused: " << misuse.what() << '\n';
        }
    });
}
