// The cost of a model from a file: loads and resumes of a FileSource, from a file outside the page cache (cold) and in
// it (warm), compared with raw direct reads of the same file by the same number of threads, and with one plain pinned
// copy. memsaver and the baselines alternate. MEMSAVER_BENCH_DIR is the directory for the file (default /var/tmp).
#include "backup_baselines.hpp"

#include <cstdlib>
#include <deque>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace bench;

std::string directory() {
    const char* const asked = std::getenv("MEMSAVER_BENCH_DIR");
    return asked != nullptr ? asked : "/var/tmp";
}

/// A file of this process, removed with it.
class Model {
public:
    explicit Model(std::size_t bytes)
        : path_{directory() + "/memsaver_file_source_bench_" + std::to_string(::getpid())}, bytes_{bytes} {
        std::ofstream out{path_, std::ios::binary};
        std::vector<char> part(64_MiB);
        std::uint64_t word = 1;
        for (std::size_t done = 0; done < bytes; done += part.size()) {
            for (std::size_t i = 0; i + 8 <= part.size(); i += 8) {
                word = word * 6364136223846793005U + 1442695040888963407U;
                __builtin_memcpy(part.data() + i, &word, 8);
            }
            out.write(part.data(), static_cast<std::streamsize>(std::min(part.size(), bytes - done)));
        }
        out.flush();
        if (!out) throw std::runtime_error{"cannot write " + path_};
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model() { (void)::unlink(path_.c_str()); }

    /// Drops the file from the page cache, or reads it into the cache.
    void set_warm(bool warm) const {
        const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0) throw std::runtime_error{"cannot open " + path_};
        if (warm) {
            std::vector<char> part(16_MiB);
            while (::read(file, part.data(), part.size()) > 0) {
            }
        } else {
            (void)::fdatasync(file);
            (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        }
        (void)::close(file);
    }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    std::string path_;
    std::size_t bytes_;
};

/// Reads the whole file, with direct I/O if possible, by several threads, and does nothing else.
template <Driver D>
class RawReads {
public:
    RawReads(const D& driver, const Model& model, unsigned threads, std::size_t part)
        : driver_{driver}, bytes_{model.bytes()}, part_{part} {
        if (!file_.open(driver_, model.path().c_str(), true).ok())
            check(file_.open(driver_, model.path().c_str(), false), "open a file");
        for (unsigned i = 0; i < threads; ++i) buffers_.emplace_back(driver, part);
    }
    void read() {
        std::atomic<std::size_t> next{0};
        std::vector<Status> failed(buffers_.size());
        std::vector<std::thread> crew;
        for (std::size_t i = 0; i < buffers_.size(); ++i) {
            crew.emplace_back([&, i] {
                for (std::size_t at = next.fetch_add(part_); at < bytes_; at = next.fetch_add(part_)) {
                    const Status status =
                        driver_.read_file(file_.get(), buffers_[i].data(), std::min(part_, bytes_ - at), at);
                    if (!status.ok()) failed[i] = status;
                }
            });
        }
        for (std::thread& thread : crew) thread.join();
        for (const Status& status : failed) check(status, "read a file");
    }

private:
    D driver_;
    std::size_t bytes_;
    std::size_t part_;
    std::deque<PinnedMemory> buffers_;
    OwnedFile file_;
};

template <Driver D>
void file_source(benchmark::State& state, const D& driver, std::size_t bytes, unsigned threads, bool warm) try {
    const Model model{bytes};
    MemorySaver<D> saver{driver};
    const FileSource policy{.threads = threads, .ring_bytes = threads * 4_MiB};
    const Arena arena = saver.arena("model", policy);
    const Buffer<char> block{arena, bytes};
    RawReads<D> raw{driver, model, threads, policy.ring_bytes / (2 * threads)};
    const Buffer<char> other{saver.arena("copied", Discard{}), bytes};
    PlainCopy<D> copy{driver, other.data(), bytes};
    std::vector<double> load, resume, reads, copies;
    const auto round = [&](bool counts) {
        model.set_warm(warm);
        const double loaded = milliseconds([&] { arena.load(block.data(), bytes, model.path()); });
        saver.pause("model");
        model.set_warm(warm);
        const double resumed = milliseconds([&] { saver.resume("model"); });
        model.set_warm(false);
        const double read = milliseconds([&] { raw.read(); });
        const double copied = milliseconds([&] { copy.in(); });
        if (!counts) return;
        load.push_back(loaded);
        resume.push_back(resumed);
        reads.push_back(read);
        copies.push_back(copied);
    };
    round(false);
    for (auto _ : state) {
        round(true);
        state.SetIterationTime(resume.back() / 1000);
    }
    auto& counters = state.counters;
    counters["bytes"] = static_cast<double>(bytes);
    counters["load_ms"] = median(load);
    counters["resume_ms"] = median(resume);
    counters["raw_direct_ms"] = median(reads);
    counters["plain_copy_ms"] = median(copies);
    counters["load_of_raw"] = median(reads) / median(load); // share of the raw reads' speed
    counters["resume_of_raw"] = median(reads) / median(resume);
    counters["load_of_copy"] = median(copies) / median(load); // share of the plain copy's speed
    counters["resume_of_copy"] = median(copies) / median(resume);
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void register_all(const D& driver) {
    constexpr std::size_t bytes = on_host<D> ? 64_MiB : 2_GiB; // disks are slow
    if (3 * bytes > memory_of(driver).free_bytes) return;
    for (const bool warm : {false, true}) {
        for (const unsigned threads : {8U, 12U}) {
            const std::string name = std::string{"file_source/"} + (warm ? "warm/" : "cold/") +
                                     std::to_string(threads) + " threads/" + format_bytes(bytes);
            fixed(benchmark::RegisterBenchmark(
                      name.c_str(),
                      [driver, threads, warm](benchmark::State& s) { file_source(s, driver, bytes, threads, warm); }),
                  on_host<D> ? 3 : 5);
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
