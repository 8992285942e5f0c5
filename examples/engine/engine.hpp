// The engine: a model with its memory in tags, which turns prompts into tokens by greedy sampling.
//
//   weights    saved to the host, saved again only after `invalidate`
//   cache      discarded
//   graphs     other memory of captured graphs: saved, which is the default
//   prefill    the tables of the eager path: saved
//   workspace  a pool shared by all graphs and the eager path, and cuBLAS' workspace: discarded
#pragma once

#include "decoder.hpp"
#include "options.hpp"

#include <memsaver/backup/compressed.hpp>
#include <memsaver/interop/cuda_pools.hpp>
#include <memsaver/memsaver.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace engine {

using Tokens = std::vector<std::int32_t>;

/// Every tag except the weights: resumed when an engine resumes to receive new weights.
inline const std::vector<std::string> light_tags{"cache", "graphs", "workspace", "prefill"};

/// A model in memory and the graphs captured for it. Several may take turns on the device.
struct Loaded {
    std::string tag; ///< the tag of its weights
    Weights weights;
    std::optional<Model> model{};
    std::optional<Decoder> decoder{};
};

/// Called after every step with its rows and their logits on the device. Used by checks.
using StepObserver = std::function<void(std::span<const Row>, const float* logits)>;

class Engine {
public:
    /// Called after each part is made ("context", "cuBLAS", "weights", "cache", "warm-up", "graphs", "backup"), with
    /// the bytes held by memsaver and by the runtime's pools.
    using Built = std::function<void(const char* part, std::size_t mapped_bytes, std::size_t pool_bytes)>;

    explicit Engine(const Options& options, const Built& tell = {})
        : options_{options}, driver_{open_device(options.device)}, stream_{make_stream()} {
        const auto built = [&](const char* part) {
            if (tell) tell(part, mapped_bytes(), pool_bytes());
        };
        built("context");
        handle_ = make_blas_handle();
        built("cuBLAS");
        saver_.emplace(driver_, memsaver::SaverOptions{.enabled = options.memsaver});
        trim_ = saver_->after_pause(memsaver::trim_cuda_pools);
        load_weights("weights", options_.seed);
        built("weights");
        cache_.emplace(saver_->arena("cache", memsaver::Discard{}, {.reserve = options.cache_bytes()}), options.model,
                       options.page_tokens, options.cache_bytes());
        built("cache");
        make_steps();
        make_model();
        for (const int rows : options.batches) warm_up(rows);
        (void)weights().checksum(stream());
        built("warm-up");
        capture_graphs();
        built("graphs");
        if (options.memsaver) saver_->prepare("weights"); // so that the first pause is as fast as later ones
        built("backup");
    }

    Engine(const Engine&) = delete; // its parts refer to one another
    Engine& operator=(const Engine&) = delete;

    /// Returns the prompts' continuations, computing up to the largest batch at once. `page_order` permutes the pages
    /// of the cache, which must not affect the result. Without `graphs`, the same steps are launched kernel by kernel.
    std::vector<Tokens> generate(const std::vector<Tokens>& prompts, int new_tokens, std::uint64_t page_order = 0,
                                 bool graphs = true, const StepObserver& observe = {}) {
        PageTable table{cache_->pages(), options_.page_tokens, slots(), pages_per_slot(), page_order};
        std::vector<Tokens> results(prompts.size());
        std::vector<Row> rows;
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            const int slot = table.open();
            table.grow(slot, static_cast<int>(prompts[i].size()));
            for (std::size_t at = 0; at < prompts[i].size(); ++at)
                rows.push_back({static_cast<int>(i), prompts[i][at], static_cast<std::int32_t>(at), slot});
        }
        std::vector<Row> last(prompts.size()); // each sequence's newest token
        const auto take = [&](std::span<const Row> done) {
            for (std::size_t i = 0; i < done.size(); ++i) {
                const auto sequence = static_cast<std::size_t>(done[i].sequence);
                last[sequence] = {done[i].sequence, host_->next()[i], done[i].position + 1, done[i].slot};
            }
        };
        const auto most = static_cast<std::size_t>(options_.largest_batch());
        for (std::size_t at = 0; at < rows.size(); at += most) {
            const auto part = std::span{rows}.subspan(at, std::min(most, rows.size() - at));
            step_eagerly(part, filled_up(part.size()), table, observe);
            take(part);
        }
        for (int made = 1;; ++made) {
            for (const Row& row : last) results[static_cast<std::size_t>(row.sequence)].push_back(row.token);
            if (made == new_tokens) return results;
            for (const Row& row : last) table.grow(row.slot, row.position + 1);
            const std::vector<Row> now = last;
            if (graphs)
                step_by_graph(now, table, observe);
            else
                step_eagerly(now, filled_up(now.size()), table, observe);
            take(now);
        }
    }

    /// Resumes everything, the weights in the order in which a step reads them. With Options::stream_weights, steps may
    /// start at once and wait for the weights that they read. The cache has no bytes to restore: its pages are mapped
    /// while the weights are copied.
    [[nodiscard]] memsaver::Arrival resume_streamed() {
        saver_->resume({"graphs", "workspace", "prefill"});
        memsaver::ResumeAsyncOptions in_order;
        for (const auto& part : weights().parts())
            in_order.first.insert(in_order.first.end(), part.begin(), part.end());
        memsaver::Arrival coming = saver_->resume_async(loaded_[active_]->tag, in_order);
        saver_->resume("cache");
        return coming;
    }

    /// Adds a second model of the same shape in its own memory, and pauses the first model for it.
    void add_model() {
        saver_->pause(loaded_[active_]->tag);
        load_weights("other weights", options_.seed + 1);
        make_model();
        capture_graphs();
        saver_->prepare("other weights");
    }
    /// Pauses the active model and resumes another one.
    void switch_to(std::size_t model) {
        if (model == active_) return;
        saver_->exchange(loaded_[active_]->tag, loaded_.at(model)->tag);
        active_ = model;
    }

    void synchronize() { check_cuda(cudaStreamSynchronize(stream()), "wait for the engine's stream"); }

    /// Returns the device memory mapped by memsaver, all tags.
    [[nodiscard]] std::size_t mapped_bytes() {
        std::size_t bytes = 0;
        if (saver_) {
            for (const memsaver::ArenaUsage& row : saver_->usage()) bytes += row.mapped_bytes;
        }
        return bytes;
    }
    /// Returns the device memory reserved by the runtime's stream-ordered pool and its pool of graph memory.
    [[nodiscard]] std::size_t pool_bytes() const {
        cudaMemPool_t pool = nullptr;
        check_cuda(cudaDeviceGetDefaultMemPool(&pool, options_.device), "get the default memory pool");
        std::uint64_t ordered = 0;
        std::uint64_t graphs = 0;
        check_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &ordered),
                   "query the pool's reserved memory");
        check_cuda(cudaDeviceGetGraphMemAttribute(options_.device, cudaGraphMemAttrReservedMemCurrent, &graphs),
                   "query graph memory");
        return static_cast<std::size_t>(ordered + graphs);
    }

    [[nodiscard]] Saver& saver() noexcept { return *saver_; }
    [[nodiscard]] Weights& weights() noexcept { return loaded_[active_]->weights; }
    [[nodiscard]] const KvCache& cache() const noexcept { return *cache_; }
    [[nodiscard]] Decoder& decoder() noexcept { return *loaded_[active_]->decoder; }
    [[nodiscard]] const memsaver::WorkspacePool& workspaces() const noexcept { return *workspaces_; }
    [[nodiscard]] const memsaver::CudaDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }
    [[nodiscard]] const Options& options() const noexcept { return options_; }

private:
    static memsaver::CudaDriver open_device(int device) {
        check_cuda(cudaSetDevice(device), "select the device");
        check_cuda(cudaFree(nullptr), "create a context");
        cudaMemPool_t pool = nullptr;
        check_cuda(cudaDeviceGetDefaultMemPool(&pool, device), "get the default memory pool");
        std::uint64_t keep = std::numeric_limits<std::uint64_t>::max(); // as engines do; trimmed at every pause
        check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
                   "set the pool's release threshold");
        return memsaver::CudaDriver{device};
    }

    [[nodiscard]] memsaver::AnyPolicy backup() const {
        const memsaver::HostBackup plain{.storage = options_.pageable ? memsaver::Storage::pageable
                                                                      : memsaver::Storage::pinned,
                                         .refresh = memsaver::Refresh::once,
                                         .threads = options_.backup_threads};
        if (options_.compressed) return memsaver::Compressed<memsaver::HostBackup>{plain};
        return plain;
    }

    /// Loads the next active model.
    void load_weights(const char* tag, std::uint64_t seed) {
        loaded_.push_back(std::unique_ptr<Loaded>{
            new Loaded{tag,
                       {saver_->arena(tag, backup(), {.reserve = options_.model.weight_bytes()}), options_.model, seed,
                        stream()}}});
        active_ = loaded_.size() - 1;
        synchronize();
    }
    void make_model() {
        Loaded& made = *loaded_[active_];
        if (options_.stream_weights) made.weights.make_gates(*saver_);
        made.model.emplace(options_.model, made.weights, *cache_, *blas_);
        made.decoder.emplace(*saver_, *made.model, *workspaces_, slots(), pages_per_slot());
    }
    void capture_graphs() {
        for (const int rows : options_.batches) decoder().capture(rows, stream());
        for (const int rows : options_.batches) decoder().graph_for(rows).graph.launch(stream()); // uploads it
        synchronize();
    }

    void make_steps() {
        using namespace memsaver::literals;
        const int rows = options_.largest_batch();
        const std::size_t scratch = StepScratch::of(nullptr, options_.model, rows).bytes;
        workspaces_.emplace(saver_->arena("workspace", memsaver::Discard{}),
                            memsaver::WorkspacePoolOptions{.cap = round_up(scratch, 2_MiB)});
        blas_.emplace(handle_.get(), workspaces_->get("cublas", 32_MiB, {.cap = 32_MiB, .group = "cublas"}), 32_MiB);
        blas_->set_stream(stream());
        eager_ = StepBuffers{saver_->arena("prefill", memsaver::HostBackup{}),
                             options_.model,
                             rows,
                             slots(),
                             pages_per_slot(),
                             stream()};
        host_.emplace(rows, static_cast<std::size_t>(slots()) * static_cast<std::size_t>(pages_per_slot()));
    }

    /// Returns a captured number of rows, also for steps without a graph: other shapes would make cuBLAS load other
    /// kernels at any time.
    [[nodiscard]] int filled_up(std::size_t rows) const {
        for (const int batch : options_.batches) {
            if (static_cast<std::size_t>(batch) >= rows) return batch;
        }
        throw std::invalid_argument{std::to_string(rows) + " rows exceed the largest batch"};
    }

    /// Runs one step with padding rows only, so that every kernel that a graph will contain is loaded.
    void warm_up(int rows) {
        const PageTable table{cache_->pages(), options_.page_tokens, slots(), pages_per_slot()};
        step_eagerly({}, rows, table, {});
    }

    void step_eagerly(std::span<const Row> rows, int count, const PageTable& table, const StepObserver& observe) {
        const std::size_t numbers = host_->write(rows, count, table);
        eager_.upload(*host_, numbers, stream());
        StepMemory memory = eager_.memory(count);
        const ModelSize& size = options_.model;
        void* logits = nullptr; // from the runtime's own pool, which retains freed memory; a hook trims it
        check_cuda(cudaMallocAsync(
                       &logits, static_cast<std::size_t>(count) * static_cast<std::size_t>(size.vocab) * sizeof(float),
                       stream()),
                   "allocate the logits");
        memory.logits = static_cast<float*>(logits);
        void* const workspace =
            workspaces_->get("prefill", StepScratch::of(nullptr, size, count).bytes, {.stream = stream()});
        loaded_[active_]->model->step(memory, StepScratch::of(workspace, size, count), count, stream());
        eager_.download(*host_, count, stream());
        if (observe) observe(rows, memory.logits);
        check_cuda(cudaFreeAsync(logits, stream()), "free the logits");
    }

    void step_by_graph(std::span<const Row> rows, const PageTable& table, const StepObserver& observe) {
        DecodeGraph& graph = decoder().graph_for(static_cast<int>(rows.size()));
        const int count = graph.buffers.rows();
        graph.buffers.upload(*host_, host_->write(rows, count, table), stream());
        graph.graph.launch(stream());
        graph.buffers.download(*host_, count, stream());
        if (observe) observe(rows, graph.buffers.memory(count).logits);
    }

    [[nodiscard]] int slots() const noexcept { return options_.largest_batch() + 1; }
    [[nodiscard]] int pages_per_slot() const noexcept {
        return (options_.model.max_positions + options_.page_tokens - 1) / options_.page_tokens;
    }

    Options options_;
    memsaver::CudaDriver driver_;
    Stream stream_;
    BlasHandle handle_;
    std::optional<Saver> saver_;
    memsaver::Hook trim_;
    std::optional<KvCache> cache_;
    std::optional<memsaver::WorkspacePool> workspaces_;
    std::optional<memsaver::CublasWorkspace> blas_;
    std::vector<std::unique_ptr<Loaded>> loaded_; // entries refer to their own parts
    std::size_t active_ = 0;
    StepBuffers eager_;
    std::optional<StepOnHost> host_;
};

/// Makes prompts of slightly different lengths, random from a seed.
inline std::vector<Tokens> make_prompts(const Options& options, int count) {
    std::vector<Tokens> prompts;
    std::uint64_t state = options.seed * 0x9e3779b97f4a7c15ull + 1;
    for (int i = 0; i < count; ++i) {
        Tokens prompt(static_cast<std::size_t>(std::max(1, options.prompt_tokens - i % 5)));
        for (std::int32_t& token : prompt) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            token = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(options.model.vocab));
        }
        prompts.push_back(std::move(prompt));
    }
    return prompts;
}

} // namespace engine
