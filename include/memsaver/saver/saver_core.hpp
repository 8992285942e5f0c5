// What a saver owns: its arenas by tag and device, and the operations over several of them.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/saver/hooks.hpp"
#include "memsaver/saver/open_captures.hpp"
#include "memsaver/saver/region_stacks.hpp"
#include "memsaver/saver/relief.hpp"
#include "memsaver/saver/saver_base.hpp"
#include "memsaver/saver/stream_mark.hpp"
#include "memsaver/saver/tag_table.hpp"
#include "memsaver/saver/usage.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Shared by a MemorySaver and all its handles; lives as long as the last of them.
template <Driver D>
class SaverCore final : public SaverBase {
public:
    using Tags = typename TagTable<D>::Names;

    SaverCore(D driver, SaverOptions options)
        : driver_{std::move(driver)}, options_{std::move(options)}, tags_{driver_, options_} {}

    [[nodiscard]] const D& driver() const noexcept { return driver_; }
    [[nodiscard]] bool enabled() const noexcept { return options_.enabled; }
    [[nodiscard]] const EventSink& events() const noexcept { return options_.events; }
    HookList<PauseEvent> before_pause;
    HookList<PauseEvent> after_pause;
    HookList<ResumeEvent> before_resume;
    HookList<ResumeEvent> after_resume;
    OpenCaptures captures;

    // --- arenas ---

    ArenaBase& arena(std::string_view tag, const std::optional<AnyBackup<D>>& policy, const D& driver,
                     const std::optional<ArenaOptions>& options, const std::optional<AnyBackup<D>>& of_new_tags = {}) {
        const auto& entry = tags_.tag_on(tag, policy, driver, options, of_new_tags);
        if (entry.core != nullptr) { // it is in our hands, should there be no room
            relief_.or_again(entry.core->device(), [&] { entry.core->reserve(); });
        }
        return *entry.arena;
    }
    ArenaBase& outside() { return tags_.outside(); }

    /// Throws Misuse, beginning with `what`, after `close`.
    void require_open(const char* what) { tags_.require_open(what); }

    void* allocate_from(ArenaBase& arena, std::size_t bytes, std::size_t alignment) override {
        return relief_.or_again(arena.device(), [&] { return arena.allocate(bytes, alignment); });
    }

    bool make_room(int device) override { return relief_.on(device); }

    void deallocate(void* pointer, FreeOrder order) {
        if (pointer == nullptr) return;
        if (ArenaBase* arena = tags_.find(pointer)) return arena->deallocate(pointer, order_now(*arena, order));
        throw Misuse{"deallocate(" + format_address(reinterpret_cast<Address>(pointer)) +
                     "): no tag of this saver has such a pointer; if it was its plain memory, it was freed before"};
    }

    FreeOrder order_now(const ArenaBase& arena, FreeOrder order) override {
        order = captures.order_now(order);
        if (order.kind != FreeOrder::Kind::stream || !tags_.several_devices()) return order;
        if (arena.owns_stream(order.stream)) return order;
        const std::vector<D> drivers = tags_.drivers();
        Status unknown;
        const D* const owner = owner_among(drivers, order.stream, unknown);
        if (owner == nullptr) {
            check(unknown, "ask whose stream it is");
            return order;
        }
        bool capturing = false;
        check(owner->capturing(order.stream, capturing), "ask whether a stream is being captured");
        order.kind = capturing ? FreeOrder::Kind::replayed : FreeOrder::Kind::marked;
        if (!capturing) order.mark = std::make_shared<StreamMark<D>>(*owner, order.stream);
        return order;
    }

    /// A graph is gone: what was given up while it was captured is as if given up now. 0 is none: who knows of what
    /// other captures keep?
    void let_go(std::uint64_t graph) noexcept {
        if (graph != 0) tags_.let_go(graph);
    }

    /// Whether this process is a child of the saver's, which must not touch what is the parent's.
    [[nodiscard]] bool forked() const noexcept { return tags_.forked(); }

    // --- regions ---

    void enter(ArenaBase& arena, const void* region) override { regions_.enter(arena, region); }
    void leave(const ArenaBase& arena, const void* region) noexcept override {
        if (regions_.leave(region)) return;
        tell(options_.events, [&] {
            return Event{EventKind::ignored, arena.tag(), arena.device(),
                         "a region ended out of order, or on another thread than it began on"};
        });
    }
    /// `bytes` from this thread's innermost region.
    void* allocate(std::size_t bytes, std::size_t alignment) {
        if (ArenaBase* arena = regions_.innermost()) return allocate_from(*arena, bytes, alignment);
        throw Misuse{
            "allocate(" + std::to_string(bytes) +
            " bytes): this thread is in no region; make one with saver.region(tag), or allocate from an arena"};
    }

    // --- operations; `tags` empty: all ---

    Report pause(const Tags& tags, const PauseOptions<D>& options) {
        hook_threads_.refuse("pause", tags);
        const Deadline deadline = deadline_after(options.timeout);
        Tags names;
        const auto cores = tags_.select("pause", tags, names);
        if (!enabled()) return {};
        captures.refuse("pause");
        const Span pausing = span_of(names, "pause");
        PauseEvent event{names, {}};
        run_hooks([&] { before_pause.run_until_throw(event); });
        {
            const OpenCaptures::KeepOut no_captures{captures, "pause"};
            std::vector<PauseStep<D>> steps;
            steps.reserve(cores.size());
            for (ArenaCore<D>* core : cores)
                steps.emplace_back(*core, core->take_turn(deadline, "pause"), options.bytes);
            event.report = run_pause(steps, options.order, deadline, others_for(options.order));
        }
        run_hooks([&] { after_pause.run_all(event); });
        return std::move(event.report);
    }

    Report resume(const Tags& tags) {
        hook_threads_.refuse("resume", tags);
        Tags names;
        const auto cores = tags_.select("resume", tags, names);
        if (!enabled()) return {};
        const Span resuming = span_of(names, "resume");
        ResumeEvent event{names, {}};
        run_hooks([&] { before_resume.run_until_throw(event); });
        {
            std::vector<Turn::Hold> turns; // taken in the order that all operations keep
            turns.reserve(cores.size());
            for (ArenaCore<D>* core : cores) turns.push_back(core->take_turn({}, "resume"));
            std::vector<ResumeStep<D>> steps; // run in the caller's
            steps.reserve(cores.size());
            for (const std::size_t i : in_order_of(tags, cores)) steps.emplace_back(*cores[i], std::move(turns[i]));
            event.report = run_resume(steps, [&] { return relief_.on_all(cores); });
        }
        run_hooks([&] { after_resume.run_all(event); });
        return std::move(event.report);
    }

    Report trim(const Tags& tags, const TrimOptions& options) {
        hook_threads_.refuse("trim", tags);
        const Deadline deadline = deadline_after(options.timeout);
        Tags names;
        const auto cores = tags_.select("trim", tags, names);
        if (!enabled()) return {};
        const Span trimming = span_of(names, "trim");
        std::optional<OpenCaptures::KeepOut> no_captures; // which its wait would break
        if (options.order.kind() == Order::Kind::device) no_captures.emplace(captures, "trim");
        std::vector<TrimStep<D>> steps;
        steps.reserve(cores.size());
        for (ArenaCore<D>* core : cores) steps.emplace_back(*core, core->take_turn(deadline, "trim"));
        Report report = run_trim(steps, options.order, deadline, others_for(options.order));
        if (report.released_bytes == 0) return report;
        tell(options_.events, [&] {
            return Event{EventKind::trimmed, listed(names), driver_.device(),
                         "trimmed " + format_bytes(report.released_bytes)};
        });
        return report;
    }

    void invalidate(const Tags& tags) {
        Tags names;
        for (ArenaCore<D>* core : tags_.select("invalidate", tags, names)) core->invalidate();
    }

    void prepare(const Tags& tags) {
        Tags names;
        for (ArenaCore<D>* core : tags_.select("prepare", tags, names)) core->prepare();
    }

    BackupView backup_view(const void* pointer, std::size_t bytes) {
        if (ArenaBase* arena = tags_.find(pointer)) return arena->backup_view(pointer, bytes);
        throw Misuse{"backup_view(" + format_address(reinterpret_cast<Address>(pointer)) + ", " + format_bytes(bytes) +
                     "): no tag of this saver has such a pointer"};
    }

    std::size_t bytes_to_resume(const Tags& tags) {
        Tags names;
        std::size_t bytes = 0;
        for (ArenaCore<D>* core : tags_.select("bytes_to_resume", tags, names)) bytes += core->bytes_to_resume();
        return bytes;
    }

    /// The saver's own, and those that its tags live on: one for each device, whatever options others have.
    [[nodiscard]] std::vector<D> drivers() { return tags_.drivers(); }

    Usage usage() {
        std::vector<ArenaUsage> rows;
        for (const auto& tag : tags_.snapshot()) rows.push_back(tag.arena->usage());
        for (ArenaUsage& row : tags_.quarantine_usage()) rows.push_back(std::move(row));
        if (ArenaUsage row = tags_.outside_usage(); row.mapped_bytes != 0) rows.push_back(std::move(row));
        std::vector<DeviceUsage> devices;
        for (const D& driver : drivers()) {
            DeviceMemory memory;
            const bool known = driver.memory(memory).ok(); // a device that is lost is not
            DeviceUsage device{
                driver.device(), memory.total_bytes, memory.total_bytes - memory.free_bytes, 0, 0, known};
            for (const ArenaUsage& row : rows)
                device.mapped_bytes += row.device == device.device ? row.mapped_bytes : 0;
            device.unexplained_bytes = device.used_bytes - std::min(device.used_bytes, device.mapped_bytes);
            devices.push_back(device);
        }
        return {std::move(rows), std::move(devices)};
    }

    /// What a destructor ignores.
    void ignore(const ArenaBase& arena, const Status& status, const char* what) const noexcept {
        tell(options_.events, [&] {
            return Event{EventKind::ignored, arena.tag(), arena.device(), failure_text(status, what)};
        });
    }

    /// Closes every arena. Throws the first failure after all have been tried; may be called again.
    void close() {
        hook_threads_.refuse("close", {});
        tags_.close();
        std::exception_ptr first;
        for (const auto& tag : tags_.snapshot()) {
            try {
                if (tag.core != nullptr) tag.core->close();
            } catch (const Error&) {
                if (!first) first = std::current_exception();
            }
        }
        Status status;
        for (PlainArena<D>* const plain : tags_.plain_arenas()) {
            if (const Status closing = plain->close(); status.ok()) status = closing;
        }
        if (first) std::rethrow_exception(first);
        check(status, "free plain memory");
    }

private:
    /// The devices that an order may name besides those of the tags concerned.
    std::vector<D> others_for(const Order& order) {
        const bool named = order.kind() == Order::Kind::after && tags_.several_devices();
        return named ? tags_.drivers() : std::vector<D>{};
    }
    /// The indices of `cores` in the order of the caller's list of tags.
    static std::vector<std::size_t> in_order_of(const Tags& tags, const std::vector<ArenaCore<D>*>& cores) {
        std::vector<std::size_t> order(cores.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto place = [&](std::size_t i) {
            return std::find(tags.begin(), tags.end(), cores[i]->tag()) - tags.begin();
        };
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
        return order;
    }
    template <class Run>
    void run_hooks(Run&& run) {
        const HookThreads::Mark mark{hook_threads_};
        run();
    }

    /// An operation on these tags, for those who listen.
    [[nodiscard]] Span span_of(const Tags& names, const char* what) const {
        return {options_.events, listed(names), driver_.device(), what};
    }
    static std::string listed(const Tags& names) {
        std::string all;
        for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
        return all;
    }

    D driver_;
    SaverOptions options_;
    RegionStacks regions_;
    HookThreads hook_threads_;
    TagTable<D> tags_;
    Relief<D> relief_{tags_, options_.events};
};

} // namespace memsaver::inline v0_1
