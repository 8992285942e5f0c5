// Hooks that empty other caches before a pause, a report after it, and a table of memory usage.
#include <memsaver/memsaver.hpp>

#include <iostream>
#include <memory>

using namespace memsaver;

int main() {
    with_default_driver([](auto driver) {
        const EventSink events = [](const Event& event) { std::cout << "event: " << event.text << '\n'; };
        MemorySaver saver{driver, {.margin = 64_MiB, .events = events}};
        auto lookup = std::make_unique<Buffer<int>>(saver.arena("lookup"), 1 << 20);
        const Buffer<float> weights{saver.arena("weights"), 8 << 20};

        // A hook is active as long as its handle lives. It may free and allocate, but not pause.
        Hook flush = saver.before_pause([&](PauseEvent& event) {
            std::cout << "about to pause " << event.tags.size() << " tags: emptying the lookup table\n";
            lookup.reset();
        });
        Hook said = saver.after_pause([](PauseEvent& event) {
            for (const TagReport& tag : event.report.tags) {
                std::cout << "  " << tag.tag << " released " << format_bytes(tag.released_bytes) << '\n';
            }
        });
        Hook woken = saver.after_resume([](ResumeEvent& event) {
            std::cout << "resumed: " << format_bytes(event.report.mapped_bytes) << " mapped\n";
        });

        std::cout << saver.usage() << '\n';
        saver.pause();
        std::cout << '\n' << saver.usage() << '\n';
        std::cout << "a resume needs " << format_bytes(saver.bytes_to_resume()) << '\n';
        saver.resume();
        for (const ArenaUsage& row : saver.usage()) { // the rows of the table, as numbers
            std::cout << row.tag << ": " << row.blocks << " blocks, " << row.used_bytes << " bytes\n";
        }
        saver.trim(); // releases pages that no block uses
    });
}
