// The time of a resume right after another process released most of the device, while the device clears that memory
// with its copy engines. Measured with and without copies by a kernel, compared with one plain pinned copy of the same
// size on a quiet device. On a host machine, the copy engines are stopped instead.
#include "backup_baselines.hpp"

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace bench;

/// Another process, which on request allocates all of the device's memory except a part, and frees it.
class OtherProcess {
public:
    /// Call before any use of CUDA.
    OtherProcess() {
        if (::pipe(orders_) != 0 || ::pipe(answers_) != 0) throw std::runtime_error{"cannot create pipes"};
        child_ = ::fork();
        if (child_ < 0) throw std::runtime_error{"cannot start a process"};
        (void)::close(child_ == 0 ? orders_[1] : orders_[0]);
        (void)::close(child_ == 0 ? answers_[0] : answers_[1]); // so that each process sees the end of the other
        if (child_ == 0) serve();
        (void)std::signal(SIGPIPE, SIG_IGN);
    }
    OtherProcess(const OtherProcess&) = delete;
    OtherProcess& operator=(const OtherProcess&) = delete;
    ~OtherProcess() {
        (void)::close(orders_[1]);
        (void)::close(answers_[0]);
        (void)::waitpid(child_, nullptr, 0);
    }

    /// Allocates all except `left` bytes and writes to them. Returns the number of bytes.
    std::size_t take(std::size_t left) { return order(left); }
    /// Frees them. Returns the number of bytes.
    std::size_t give() { return order(0); }

private:
    std::size_t order(std::size_t what) {
        std::size_t answer = 0;
        if (::write(orders_[1], &what, sizeof what) != sizeof what ||
            ::read(answers_[0], &answer, sizeof answer) != sizeof answer)
            throw std::runtime_error{"the other process has ended"};
        return answer;
    }
    [[noreturn]] void serve() {
        int result = 1;
        try {
            const CudaDriver driver{0};
            std::vector<PageHandle> handles;
            Address range = 0;
            check(driver.reserve(1024_GiB, 2_MiB, range), "reserve addresses");
            for (std::size_t left = 0; ::read(orders_[0], &left, sizeof left) == sizeof left;) {
                std::size_t answer = handles.size() * 1_GiB;
                if (left == 0) {
                    if (!handles.empty()) check(driver.unmap(range, answer), "unmap");
                    for (const PageHandle handle : handles) check(driver.release(handle), "release");
                    handles.clear();
                } else {
                    while (memory_of(driver).free_bytes >= left + 1_GiB) {
                        PageHandle handle;
                        check(driver.create(1_GiB, handle), "create");
                        check(driver.map(range + handles.size() * 1_GiB, 1_GiB, handle), "map");
                        handles.push_back(handle);
                    }
                    answer = handles.size() * 1_GiB;
                    check(driver.allow_access(range, answer), "allow access");
                    check(driver.fill(range, 1, answer, {}), "write");
                    check(driver.drain(), "wait");
                }
                if (::write(answers_[1], &answer, sizeof answer) != sizeof answer) break;
            }
            result = 0;
        } catch (const std::exception& error) {
            if (CudaDriver::available()) std::fprintf(stderr, "the other process: %s\n", error.what());
        }
        ::_exit(result);
    }

    int orders_[2]{};
    int answers_[2]{};
    pid_t child_ = -1;
};

OtherProcess* neighbour = nullptr;

/// Makes the device's copy engines busy. Returns the number of bytes released for it.
template <Driver D>
std::size_t disturb(const D& driver, std::size_t bytes) {
    if constexpr (on_host<D>) {
        check(driver.stall_copies(std::chrono::milliseconds{20}), "stall the engines");
        return bytes;
    } else {
        if (neighbour == nullptr) throw std::runtime_error{"the other process was not started"};
        (void)neighbour->take(bytes + 2_GiB);
        return neighbour->give();
    }
}

template <Driver D>
void resume(benchmark::State& state, const D& driver, std::size_t bytes, KernelCopyOptions kernel_copies) try {
    if (on_host<D>) bytes /= 64;
    use_up_fresh_pages(driver);
    warm_host_memory(driver, 3 * bytes);
    MemorySaver<D> saver{driver};
    const Buffer<char> block{saver.arena("weights", HostBackup{.kernel_copies = kernel_copies}), bytes};
    double quiet = 0;
    {
        PlainCopy<D> plain{driver, block.data(), bytes};
        std::vector<double> all;
        plain.in();
        for (int i = 0; i < 3; ++i) all.push_back(milliseconds([&] { plain.in(); }));
        quiet = median(all);
    }
    saver.pause("weights");
    saver.resume("weights");
    std::vector<double> took;
    std::size_t given = 0;
    for (auto _ : state) {
        saver.pause("weights");
        given = disturb(driver, bytes);
        took.push_back(milliseconds([&] { saver.resume("weights"); }));
        state.SetIterationTime(took.back() / 1000);
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["given_back_bytes"] = static_cast<double>(given);
    state.counters["resume_ms"] = median(took);
    state.counters["quiet_copy_ms"] = quiet;
    state.counters["ratio"] = median(took) / quiet;
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void register_all(const D& driver) {
    const auto add = [&](const char* name, KernelCopyOptions options) {
        benchmark::RegisterBenchmark(
            name, [driver, options](benchmark::State& state) { resume(state, driver, 16_GiB, options); })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond)
            ->Iterations(5);
    };
    add("after a neighbour/by kernel", on_host<D> ? KernelCopyOptions{.least_bytes = 1_MiB} : KernelCopyOptions{});
    add("after a neighbour/by engine", {.after = std::chrono::nanoseconds{}});
}

} // namespace

int main(int argc, char** argv) {
    try {
        OtherProcess other;
        neighbour = &other;
        return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
    } catch (const std::exception& error) {
        return std::fprintf(stderr, "%s\n", error.what()), 1;
    }
}
