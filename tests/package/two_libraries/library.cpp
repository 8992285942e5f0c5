// Built twice, as two independent libraries.
#include "library.hpp"

#include <algorithm>
#include <span>

using namespace memsaver;

namespace {

class Own final : public Library {
public:
    bool is_compiled() const override {
#ifdef MEMSAVER_COMPILED
        return true;
#else
        return false;
#endif
    }
    void write(unsigned char byte) override { std::ranges::fill(bytes(), byte); }
    bool holds(unsigned char byte) override { return std::ranges::count(bytes(), byte) == std::ssize(bytes()); }
    Report pause() override { return saver_.pause(); }
    Report resume() override { return saver_.resume(); }
    bool paused() override { return arena_.usage().state == "paused"; }
    void* allocate_in_region() override { return saver_.allocate(1000); }
    void deallocate(void* pointer) override { saver_.deallocate(pointer); }
    void run_out_of_memory() override { (void)arena_.allocate(100_MiB); }
    void run_in_region(const std::function<void()>& act) override {
        const auto region = saver_.region("own");
        act();
    }
    bool catches_not_idle(const std::function<void()>& act) override {
        try {
            act();
        } catch (const NotIdle&) {
            return true;
        }
        return false;
    }

private:
    [[nodiscard]] std::span<unsigned char> bytes() const { return {block_.data(), block_.size()}; }

    MemorySaver<HostDriver> saver_{HostDriver{64_MiB}};
    Arena arena_ = saver_.arena("own", HostBackup{});
    Buffer<unsigned char> block_{arena_, 3_MiB};
};

} // namespace

namespace LIBRARY {

[[gnu::visibility("default")]] Library& library() {
    static Own own;
    return own;
}

} // namespace LIBRARY
