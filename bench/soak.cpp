// Cycles of pauses, resumes, allocations and frees for a given time, in one process or in several that together need
// more memory than their device has. Returns 0 if every byte was correct, memory use was constant, and every operation
// that ran out of memory succeeded later.
//
//   soak [--seconds N] [--processes P] [--share PERCENT] [--weights BYTES_IN_MIB] [--cycles N] [--json FILE]
//
// Each process holds weights, saved to the host, and a cache, discarded; together they are `--share` percent of the
// device's memory. If the processes need more memory than there is, resumes run out of memory and are retried until
// they succeed.
#include <memsaver/memsaver.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace memsaver;
using Clock = std::chrono::steady_clock;

struct Options {
    double seconds = 10;
    int processes = 1;
    std::size_t share = 10;
    std::size_t weights_mib = 256;
    std::size_t cycles = 0; ///< stop after this number; 0: only time counts
    std::string json;
};

/// The results of one process.
struct Counts {
    std::uint64_t cycles = 0;
    std::uint64_t contended = 0;     ///< resumes that ran out of memory at first
    std::uint64_t out_of_memory = 0; ///< number of these failures
    std::uint64_t wrong = 0;         ///< blocks with wrong bytes
    std::uint64_t blocks = 0;        ///< blocks compared
    double mapped_first = 0;         ///< bytes mapped after the first resume
    double mapped_most = 0;
    double resident_first = 0; ///< of this process, in the third cycle
    double resident_last = 0;
    double paused_first = 0; ///< bytes in use on the whole device, in the third cycle, paused
    double paused_last = 0;
    double left_bytes = 0;        ///< mapped at the end, after everything was freed
    double device_left_bytes = 0; ///< in use on the device after the saver was closed, above the initial value
};

double resident_bytes() {
    std::ifstream file{"/proc/self/statm"};
    long long size = 0;
    long long resident = 0;
    file >> size >> resident;
    return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

template <Driver D>
class Soak {
public:
    Soak(const D& driver, const Options& options, unsigned seed) : driver_{driver}, options_{options}, random_{seed} {
        check(driver_.open_stream(stream_), "open a stream");
        used_before_ = used_bytes();
        const std::size_t whole = device_memory().total_bytes / 100 * options.share;
        const std::size_t weights = options.weights_mib * 1_MiB;
        cache_bytes_ = whole > weights ? whole - weights : 64_MiB;
        host_.resize(most_bytes);
        source_.resize(2 * most_bytes);
        for (unsigned char& byte : source_) byte = static_cast<unsigned char>(random_());
        for (std::size_t made = 0; made < weights;) made += add(weights_, random_bytes());
    }
    ~Soak() { (void)driver_.close_stream(stream_); }
    Soak(const Soak&) = delete;
    Soak& operator=(const Soak&) = delete;

    Counts run() {
        const auto end = Clock::now() + std::chrono::duration<double>(options_.seconds);
        cache_.push_back(take([&] { return cache_arena_.allocate(cache_bytes_); }));
        while (Clock::now() < end && (options_.cycles == 0 || counts_.cycles < options_.cycles)) cycle();
        for (const auto& [pointer, block] : weights_) arena_.deallocate(pointer);
        for (void* pointer : cache_) cache_arena_.deallocate(pointer);
        (void)saver_.resume();
        (void)saver_.trim();
        for (const ArenaUsage& row : saver_.usage()) counts_.left_bytes += static_cast<double>(row.mapped_bytes);
        saver_.close();
        counts_.device_left_bytes = used_bytes() - used_before_;
        return counts_;
    }

private:
    static constexpr std::size_t most_bytes = 8_MiB;

    struct Block {
        std::size_t bytes;
        std::size_t offset; ///< of its bytes in `source_`: restored bytes at a wrong place differ
    };
    using Blocks = std::map<void*, Block>;

    std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>{0, end - 1}(random_); }
    std::size_t random_bytes() {
        constexpr std::size_t most[] = {4_KiB, 64_KiB, 1_MiB, most_bytes, most_bytes, most_bytes};
        return 1 + below(most[below(6)]);
    }
    /// Retries until there is enough memory.
    template <class Act>
    auto take(Act&& act) {
        for (;;) {
            try {
                return act();
            } catch (const OutOfMemory&) {
                ++counts_.out_of_memory;
                std::this_thread::sleep_for(std::chrono::milliseconds{1 + below(20)});
            }
        }
    }
    std::size_t add(Blocks& blocks, std::size_t bytes) {
        void* const pointer = take([&] { return arena_.allocate(bytes); });
        Block& block = blocks[pointer] = {bytes, 0};
        write(pointer, block);
        return bytes;
    }
    void write(void* pointer, Block& block) {
        block.offset = below(most_bytes);
        check(driver_.copy_to_device(reinterpret_cast<Address>(pointer), source_.data() + block.offset, block.bytes,
                                     stream_),
              "write a block");
        check(driver_.drain(), "wait for a copy");
    }
    void compare(void* pointer, const Block& block) {
        check(driver_.copy_to_host(host_.data(), reinterpret_cast<Address>(pointer), block.bytes, stream_), "read");
        check(driver_.drain(), "wait for a copy");
        ++counts_.blocks;
        if (std::memcmp(host_.data(), source_.data() + block.offset, block.bytes) != 0) ++counts_.wrong;
    }

    void cycle() {
        (void)saver_.pause();
        if (counts_.cycles == 2) counts_.paused_first = used_bytes();
        counts_.paused_last = used_bytes();
        if (options_.processes > 1) std::this_thread::sleep_for(std::chrono::milliseconds{1 + below(30)});
        const std::uint64_t before = counts_.out_of_memory;
        take([&] { return saver_.resume(); });
        if (counts_.out_of_memory != before) ++counts_.contended;
        ++counts_.cycles;
        double mapped = 0;
        for (const ArenaUsage& row : saver_.usage()) mapped += static_cast<double>(row.mapped_bytes);
        if (counts_.cycles == 1) counts_.mapped_first = mapped;
        counts_.mapped_most = std::max(counts_.mapped_most, mapped);
        for (auto& [pointer, block] : weights_) compare(pointer, block);
        for (int i = 0; i < 8; ++i) { // frees some, allocates some, changes some
            const auto some = std::next(weights_.begin(), static_cast<std::ptrdiff_t>(below(weights_.size())));
            if (below(2) == 0) {
                write(some->first, some->second);
            } else {
                const std::size_t bytes = some->second.bytes;
                arena_.deallocate(some->first);
                weights_.erase(some);
                add(weights_, bytes);
            }
        }
        if (counts_.cycles == 3) counts_.resident_first = resident_bytes();
        counts_.resident_last = resident_bytes();
    }

    DeviceMemory device_memory() {
        DeviceMemory memory;
        check(driver_.memory(memory), "query the device's memory");
        return memory;
    }
    double used_bytes() {
        const DeviceMemory memory = device_memory();
        return static_cast<double>(memory.total_bytes - memory.free_bytes);
    }

    D driver_;
    Options options_;
    std::mt19937 random_;
    MemorySaver<D> saver_{driver_};
    Arena arena_ = saver_.arena("weights", HostBackup{.threads = 4});
    Arena cache_arena_ = saver_.arena("cache");
    StreamRef stream_;
    double used_before_ = 0;
    std::size_t cache_bytes_ = 0;
    Blocks weights_;
    std::vector<void*> cache_;
    std::vector<unsigned char> host_;
    std::vector<unsigned char> source_;
    Counts counts_;
};

Counts soak(const Options& options, unsigned seed) {
    Counts counts;
    with_default_driver(
        [&](auto driver) {
            counts = Soak<decltype(driver)>{driver, options, seed}.run();
        },
        {.host_capacity = 4_GiB});
    return counts;
}

std::string text_of(const Counts& counts) {
    std::ostringstream text;
    text << counts.cycles << ' ' << counts.contended << ' ' << counts.out_of_memory << ' ' << counts.wrong << ' '
         << counts.blocks << ' ' << counts.mapped_first << ' ' << counts.mapped_most << ' ' << counts.resident_first
         << ' ' << counts.resident_last << ' ' << counts.paused_first << ' ' << counts.paused_last << ' '
         << counts.left_bytes << ' ' << counts.device_left_bytes << '\n';
    return text.str();
}
std::istream& operator>>(std::istream& in, Counts& counts) {
    return in >> counts.cycles >> counts.contended >> counts.out_of_memory >> counts.wrong >> counts.blocks >>
           counts.mapped_first >> counts.mapped_most >> counts.resident_first >> counts.resident_last >>
           counts.paused_first >> counts.paused_last >> counts.left_bytes >> counts.device_left_bytes;
}

/// Runs `processes` children and reads their results through pipes. Empty if one failed.
std::vector<Counts> run_all(const Options& options) {
    std::vector<std::pair<pid_t, int>> children;
    for (int i = 0; i < options.processes; ++i) {
        int ends[2];
        if (::pipe(ends) != 0) return {};
        const pid_t child = ::fork(); // before any use of CUDA
        if (child == 0) {
            try {
                const std::string text = text_of(soak(options, 100U + static_cast<unsigned>(i)));
                ::_exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
            } catch (const std::exception& error) {
                std::cerr << "process " << i << ": " << error.what() << '\n';
                ::_exit(1);
            }
        }
        (void)::close(ends[1]);
        children.emplace_back(child, ends[0]);
    }
    std::vector<Counts> all;
    bool failed = false;
    for (const auto& [child, end] : children) {
        std::string text;
        char buffer[512];
        for (ssize_t got = 0; (got = ::read(end, buffer, sizeof buffer)) > 0;) {
            text.append(buffer, static_cast<std::size_t>(got));
        }
        (void)::close(end);
        int status = 0;
        failed = ::waitpid(child, &status, 0) != child || status != 0 || failed;
        Counts counts;
        std::istringstream{text} >> counts;
        all.push_back(counts);
    }
    return failed ? std::vector<Counts>{} : all;
}

void write_json(const Options& options, const std::vector<Counts>& all, bool good) {
    std::ofstream file{options.json};
    file << "{\n  \"context\": {\"processes\": " << options.processes << ", \"seconds\": " << options.seconds
         << ", \"share_percent\": " << options.share << ", \"weights_mib\": " << options.weights_mib
         << ", \"good\": " << (good ? "true" : "false") << "},\n  \"benchmarks\": [\n";
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Counts& c = all[i];
        file << "    {\"name\": \"soak/process:" << i << "\", \"cycles\": " << c.cycles
             << ", \"contended_resumes\": " << c.contended << ", \"out_of_memory\": " << c.out_of_memory
             << ", \"wrong_blocks\": " << c.wrong << ", \"blocks_compared\": " << c.blocks
             << ", \"mapped_first\": " << c.mapped_first << ", \"mapped_most\": " << c.mapped_most
             << ", \"resident_first\": " << c.resident_first << ", \"resident_last\": " << c.resident_last
             << ", \"device_paused_first\": " << c.paused_first << ", \"device_paused_last\": " << c.paused_last
             << ", \"left_bytes\": " << c.left_bytes << ", \"device_left_bytes\": " << c.device_left_bytes
             << (i + 1 == all.size() ? "}\n" : "},\n");
    }
    file << "  ]\n}\n";
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        const std::string value = argv[i + 1];
        if (name == "--seconds") options.seconds = std::stod(value);
        if (name == "--processes") options.processes = std::stoi(value);
        if (name == "--share") options.share = std::stoul(value);
        if (name == "--weights") options.weights_mib = std::stoul(value);
        if (name == "--cycles") options.cycles = std::stoul(value);
        if (name == "--json") options.json = value;
    }
    return options;
}

} // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const std::vector<Counts> all = run_all(options);
    bool good = !all.empty();
    for (const Counts& counts : all) {
        std::cout << counts.cycles << " cycles, " << counts.contended << " contended resumes (" << counts.out_of_memory
                  << " times out of memory), " << counts.blocks << " blocks compared, " << counts.wrong
                  << " wrong, mapped " << format_bytes(static_cast<std::size_t>(counts.mapped_first))
                  << " at first and " << format_bytes(static_cast<std::size_t>(counts.mapped_most)) << " at most, "
                  << format_bytes(static_cast<std::size_t>(counts.left_bytes)) << " left; device memory while paused "
                  << counts.paused_first / 1_MiB << " MiB at first and " << counts.paused_last / 1_MiB
                  << " MiB at last, " << counts.device_left_bytes / 1_MiB << " MiB left\n";
        constexpr double slack = 64_MiB;
        good = good && counts.cycles > 0 && counts.wrong == 0 && counts.left_bytes == 0;
        good = good && counts.mapped_most <= 1.1 * counts.mapped_first + slack;
        if (counts.cycles < 3) continue;
        good = good && counts.resident_last <= counts.resident_first + slack;
        if (options.processes > 1) continue; // the device's figures include the other processes
        good = good && counts.paused_last <= counts.paused_first + slack && counts.device_left_bytes <= slack;
    }
    std::cout << (good ? "passed\n" : "FAILED\n");
    if (!options.json.empty()) write_json(options, all, good);
    return good ? 0 : 1;
}
