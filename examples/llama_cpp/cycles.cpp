// Decodes, pauses, lets another allocation fill the device, resumes, continues decoding, and compares every token and
// every bit of every logit with an undisturbed run. With a second model, the two take turns. Prints JSON; returns 1 if
// the results differ.
#include "ggml_memsaver.h"

#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(memsaver_result result, const char* what) {
    if (result != MEMSAVER_OK) {
        throw std::runtime_error(std::string{what} + ": " + memsaver_result_name(result) + ": " +
                                 memsaver_last_error());
    }
}

// --- Results

struct Step {
    llama_token token;
    std::uint64_t logits; // FNV-1a of all bits
    bool operator==(const Step& other) const { return token == other.token && logits == other.logits; }
};

std::uint64_t hash_of(const float* values, std::size_t count) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, values + i, sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3;
    }
    return hash;
}

// A model with its own context. Its memory has the tags "<name>/weights", "<name>/cache" and "<name>/compute".
class Model {
public:
    Model(std::string name, const char* file, unsigned context) : name_{std::move(name)} {
        ggml_memsaver_set_model(name_.c_str());
        llama_model_params how = llama_model_default_params();
        how.n_gpu_layers = 999;
        into_buffers(how);
        model_.reset(llama_model_load_from_file(file, how));
        if (!model_) throw std::runtime_error(std::string{"could not load "} + file);
        llama_context_params wanted = llama_context_default_params();
        wanted.n_ctx = context;
        wanted.n_batch = std::min(context, 512u);
        wanted.n_threads = wanted.n_threads_batch = 1; // CPU threads; several would wait for each other by spinning
        context_.reset(llama_init_from_model(model_.get(), wanted));
        if (!context_) throw std::runtime_error(std::string{"could not create a context for "} + file);
        tokens_ = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    }

    // Restarts with the same prompt every time.
    void begin(unsigned length) {
        llama_memory_clear(llama_get_memory(context_.get()), true);
        std::vector<llama_token> prompt(length);
        for (unsigned i = 0; i < length; ++i)
            prompt[i] = static_cast<llama_token>((i * 2654435761u) % static_cast<unsigned>(tokens_));
        decode(prompt);
    }

    // Returns the most likely token and the hash of the logits that follow it.
    Step step() {
        std::vector<llama_token> one{next_};
        const llama_token said = next_;
        decode(one);
        return {said, hash_};
    }

    std::vector<Step> steps(unsigned count) {
        std::vector<Step> said(count);
        for (Step& step : said) step = this->step();
        return said;
    }

    const std::string& name() const { return name_; }

private:
    // Does not map the file: on a CPU, mapped weights would not be in a buffer. Older versions call the field use_mmap.
    template <class Params>
    static void into_buffers(Params& how) {
        if constexpr (requires { how.load_mode; }) {
            how.load_mode = decltype(how.load_mode)(0);
        } else {
            how.use_mmap = false;
        }
    }

    void decode(std::vector<llama_token>& tokens) {
        ggml_memsaver_set_model(name_.c_str()); // the pools of a CUDA backend grow here
        if (llama_decode(context_.get(), llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))) !=
            0) {
            throw std::runtime_error("llama_decode failed");
        }
        const float* logits = llama_get_logits_ith(context_.get(), -1); // waits
        hash_ = hash_of(logits, static_cast<std::size_t>(tokens_));
        next_ = static_cast<llama_token>(std::max_element(logits, logits + tokens_) - logits);
    }

    struct Free {
        void operator()(llama_model* model) const { llama_model_free(model); }
        void operator()(llama_context* context) const { llama_free(context); }
    };
    std::string name_;
    std::unique_ptr<llama_model, Free> model_;
    std::unique_ptr<llama_context, Free> context_;
    int32_t tokens_ = 0;
    llama_token next_ = 0;
    std::uint64_t hash_ = 0;
};

// --- Device

memsaver_saver* saver() {
    memsaver_saver* const found = ggml_memsaver_saver();
    if (found == nullptr)
        throw std::runtime_error("no saver: GGML_MEMSAVER is off, or its creation failed (see above)");
    return found;
}

memsaver_info device() {
    memsaver_info info = MEMSAVER_INFO_INIT;
    check(memsaver_get_info(saver(), &info), "memsaver_get_info");
    return info;
}

memsaver_usage used(const char* tag) {
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    check(memsaver_get_usage(saver(), tag == nullptr ? nullptr : &tag, tag == nullptr ? 0 : 1, &usage),
          "memsaver_get_usage");
    return usage;
}

memsaver_report pause(const std::string& under) {
    const char* const name = under.c_str();
    memsaver_report report = MEMSAVER_REPORT_INIT;
    check(memsaver_pause(saver(), &name, MEMSAVER_UNDER, nullptr, &report), "pause");
    return report;
}

memsaver_report resume(const std::string& under) {
    const char* const name = under.c_str();
    memsaver_report report = MEMSAVER_REPORT_INIT;
    check(memsaver_resume(saver(), &name, MEMSAVER_UNDER, nullptr, &report), "resume");
    return report;
}

// Keeps its model resident as long as it lives; the saver evicts the unused model to make room.
class Use {
public:
    explicit Use(const Model& model) {
        const std::string under = model.name() + "/";
        const char* const name = under.c_str();
        check(memsaver_begin_use(saver(), &name, MEMSAVER_UNDER, nullptr, &use_), "use");
    }
    Use(const Use&) = delete;
    ~Use() { memsaver_end_use(use_); }

private:
    memsaver_use* use_ = nullptr;
};

ggml_backend_buffer_type_t buffers() {
    ggml_backend_dev_t of = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    if (of == nullptr) of = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    return ggml_backend_dev_buffer_type(of);
}

// Allocates nearly all free memory, writes every byte of it, and frees it. Returns the number of bytes.
std::size_t fill() {
    const memsaver_info at = device();
    const std::size_t spare = at.driver == MEMSAVER_DRIVER_CUDA ? std::size_t{512} << 20 : 2 * at.granularity;
    if (at.free_bytes <= spare) return 0;
    const std::size_t bytes = (at.free_bytes - spare) / at.granularity * at.granularity;
    ggml_memsaver_set_model("other");
    const ggml_backend_buffer_t other = ggml_backend_buft_alloc_buffer(buffers(), bytes);
    if (other == nullptr) throw std::runtime_error("another allocation could not use the released memory");
    ggml_backend_buffer_clear(other, 0xA5);
    ggml_backend_buffer_free(other);
    const char* const tag = "other/compute";
    check(memsaver_drop(saver(), &tag, 1), "drop");
    return bytes;
}

// --- Output

struct Arguments {
    std::vector<const char*> files;
    std::map<std::string, unsigned> numbers{{"--cycles", 20},   {"--steps", 4}, {"--prompt", 32},
                                            {"--context", 512}, {"--fill", 1},  {"--speed", 0}};
    unsigned operator[](const char* name) const { return numbers.at(name); }
};

// The fastest run of each operation, with its bytes: "name":{"bytes":..,"ms":..}.
struct Fastest {
    std::size_t bytes = 0;
    std::int64_t ns = INT64_MAX;
    void see(std::size_t moved, std::int64_t took) {
        bytes = moved;
        ns = std::min(ns, took);
    }
    void print(const char* name) const {
        if (ns != INT64_MAX)
            std::printf(",\"%s\":{\"bytes\":%zu,\"ms\":%.4f}", name, bytes, static_cast<double>(ns) / 1e6);
    }
};

void disturb(Model& model, const Arguments& asked, const std::vector<Step>& undisturbed, bool& identical) {
    const std::string under = model.name() + "/";
    const unsigned cycles = asked["--cycles"], each = asked["--steps"];
    Fastest out, in;
    std::size_t filled = 0, left = 0, least_free = SIZE_MAX;
    unsigned same = 0;
    model.begin(asked["--prompt"]);
    for (unsigned cycle = 0; cycle < cycles; ++cycle) {
        const memsaver_report paused = pause(under);
        left = std::max(left, used(nullptr).mapped_bytes);
        least_free = std::min(least_free, device().free_bytes);
        if (asked["--fill"] != 0) filled = std::max(filled, fill());
        const memsaver_report resumed = resume(under);
        out.see(paused.released_bytes, paused.elapsed_ns);
        in.see(resumed.mapped_bytes, resumed.elapsed_ns);
        const std::vector<Step> said = model.steps(each);
        same += std::equal(said.begin(), said.end(), undisturbed.begin() + cycle * each);
    }
    identical = identical && same == cycles;
    std::printf(",\"cycles\":%u,\"identical_cycles\":%u,\"filled_bytes\":%zu,\"still_mapped_bytes\":%zu", cycles, same,
                filled, left);
    std::printf(",\"used_while_paused_bytes\":%zu", device().total_bytes - least_free);
    std::printf(",\"weights_kept_bytes\":%zu", used((under + "weights").c_str()).backed_up_bytes);
    out.print("pause");
    in.print("resume");
}

// Measures the weights alone, alternating with one plain block of the same size, policy and device state.
void speed(const Model& model, unsigned rounds) {
    const std::string weights = model.name() + "/weights";
    const std::size_t bytes = used(weights.c_str()).used_bytes;
    void* plain = nullptr;
    memsaver_policy policy = MEMSAVER_POLICY_INIT;
    policy.kind = MEMSAVER_HOST_BACKUP;
    policy.refresh = MEMSAVER_ONCE;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &policy;
    check(memsaver_make_tag(saver(), "plain", &options), "memsaver_make_tag");
    check(memsaver_allocate(saver(), "plain", bytes, 0, &plain), "memsaver_allocate");
    Fastest out[2], in[2];
    for (unsigned round = 0; round < 2 * rounds; ++round) {
        const char* const name = round % 2 == 0 ? weights.c_str() : "plain";
        memsaver_report report = MEMSAVER_REPORT_INIT;
        check(memsaver_invalidate(saver(), &name, 1), "invalidate"); // so that the pause copies
        check(memsaver_pause(saver(), &name, 1, nullptr, &report), "pause");
        if (round >= 2) out[round % 2].see(bytes, report.elapsed_ns); // the first pause pins host memory
        check(memsaver_resume(saver(), &name, 1, nullptr, &report), "resume");
        if (round >= 2) in[round % 2].see(bytes, report.elapsed_ns);
    }
    out[0].print("weights_pause");
    in[0].print("weights_resume");
    out[1].print("plain_pause");
    in[1].print("plain_resume");
    const char* const name = "plain";
    check(memsaver_drop(saver(), &name, 1), "drop");
}

// Two models take turns in memory for one, by pause and resume or by uses. Each must produce the same results as alone.
template <class Switch>
bool turns(const char* name, Model* const (&models)[2], const std::vector<Step> (&alone)[2], const Arguments& asked,
           Switch turn_to) {
    const unsigned cycles = asked["--cycles"], each = asked["--steps"];
    unsigned same = 0;
    std::int64_t fastest = INT64_MAX;
    for (unsigned of = 0; of < 2; ++of) {
        [[maybe_unused]] const auto here = turn_to(of);
        models[of]->begin(asked["--prompt"]);
    }
    for (unsigned cycle = 0; cycle < cycles; ++cycle) {
        bool both = true;
        for (unsigned of = 0; of < 2; ++of) {
            const auto start = std::chrono::steady_clock::now();
            [[maybe_unused]] const auto here = turn_to(of);
            fastest = std::min<std::int64_t>(
                fastest, std::chrono::nanoseconds{std::chrono::steady_clock::now() - start}.count());
            const std::vector<Step> said = models[of]->steps(each);
            both = both && std::equal(said.begin(), said.end(), alone[of].begin() + cycle * each);
        }
        same += both;
    }
    std::printf(",\"%s\":{\"cycles\":%u,\"identical_cycles\":%u,\"switch_ms\":%.4f}", name, cycles, same,
                static_cast<double>(fastest) / 1e6);
    return same == cycles;
}

bool take_turns(Model& first, const std::vector<Step>& first_alone, const Arguments& asked) {
    { const Use used{first}; } // idle from here on: evicted when the second model does not fit
    Model second{"b", asked.files[1], asked["--context"]};
    { const Use used{second}; }
    second.begin(asked["--prompt"]);
    Model* const models[] = {&first, &second};
    const std::vector<Step> alone[] = {first_alone, second.steps(asked["--cycles"] * asked["--steps"])};
    bool identical = turns("turns", models, alone, asked, [&](unsigned of) {
        pause(models[1 - of]->name() + "/");
        return resume(models[of]->name() + "/");
    });
    identical &=
        turns("turns_by_use", models, alone, asked, [&](unsigned of) { return std::make_unique<Use>(*models[of]); });
    return identical;
}

bool run(const Arguments& asked) {
    llama_backend_init();
    Model model{"a", asked.files[0], asked["--context"]};
    model.begin(asked["--prompt"]);
    const unsigned total = asked["--cycles"] * asked["--steps"];
    const std::vector<Step> undisturbed = model.steps(total);
    model.begin(asked["--prompt"]);
    // Otherwise the engine itself, not a pause, causes differences.
    const bool repeatable = model.steps(total) == undisturbed;
    const memsaver_info at = device();
    std::printf("{\"machine\":\"%s\",\"backend\":\"%s\"", at.name, ggml_backend_buft_name(buffers()));
    for (const char* usage : {"weights", "cache", "compute"}) {
        std::printf(",\"%s_bytes\":%zu", usage, used((std::string{"a/"} + usage).c_str()).used_bytes);
    }
    std::printf(",\"repeatable\":%s", repeatable ? "true" : "false");
    bool identical = true;
    disturb(model, asked, undisturbed, identical);
    if (asked["--speed"] != 0) speed(model, asked["--speed"]);
    if (asked.files.size() > 1) identical &= take_turns(model, undisturbed, asked);
    std::printf(",\"identical\":%s}\n", identical ? "true" : "false");
    return identical;
}

} // namespace

int main(int count, char** values) {
    Arguments asked;
    for (int i = 1; i < count; ++i) {
        if (asked.numbers.count(values[i]) != 0 && i + 1 < count) {
            asked.numbers[values[i]] = static_cast<unsigned>(std::stoul(values[i + 1]));
            ++i;
        } else {
            asked.files.push_back(values[i]);
        }
    }
    if (asked.files.empty() || asked.files.size() > 2 || asked.files[0][0] == '-') {
        std::fprintf(stderr, "memsaver_cycles MODEL [SECOND] [--cycles 20] [--steps 4] [--prompt 32] [--context 512] "
                             "[--fill 1] [--speed 0]\n");
        return 2;
    }
    try {
        return run(asked) ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "memsaver_cycles: %s\n", error.what());
        return 1;
    }
}
