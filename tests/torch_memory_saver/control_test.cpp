// The named pipe and its state file.
#include "../../examples/torch_memory_saver/control.hpp"
#include "support/machines.hpp"

#include <pthread.h>
#include <signal.h>

namespace torch_memory_saver_control_test {
using tms::Control;

/// A temporary folder, and the commands that the pipe received.
struct Place {
    int act(const std::string& verb, const std::string& tag) {
        const std::lock_guard lock{mutex};
        acts.emplace_back(verb, tag);
        changed.notify_all();
        return verb == "pause" ? 0 : 2;
    }
    void wait_for(std::size_t count) {
        std::unique_lock lock{mutex};
        changed.wait(lock, [&] { return acts.size() >= count; });
    }
    [[nodiscard]] std::string state() const {
        std::ifstream file{path + ".state"};
        std::string line;
        std::getline(file, line);
        return line;
    }

    const test::Folder folder{};
    const std::string path = folder.path.string() + "/pipe";
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::pair<std::string, std::string>> acts;
};

TEST_CASE("commands arrive in order, whole, and are answered") {
    static Place place; // the control's thread lives as long as the process
    static auto* const control = new Control;
    CHECK(
        control->open(place.path, [](const std::string& v, const std::string& t) { return place.act(v, t); }).empty());
    CHECK(place.state() == "0 ready 0");
    {
        std::ofstream pipe{place.path};
        pipe << "pause\npause kv cache\n" << std::flush << "res" << std::flush << "ume kv cache\nresume last\n";
    }
    place.wait_for(4);
    CHECK(place.acts[0] == std::pair<std::string, std::string>{"pause", ""});
    CHECK(place.acts[1] == std::pair<std::string, std::string>{"pause", "kv cache"});
    CHECK(place.acts[2] == std::pair<std::string, std::string>{"resume", "kv cache"});
    // The third reply was written before the fourth command began.
    const std::string state = place.state();
    CHECK((state == "3 resume kv cache 2" || state == "4 resume last 2"));
    while (place.state() != "4 resume last 2") std::this_thread::yield(); // or the folder's end would meet its file
    const auto mode = std::filesystem::status(place.path).permissions();
    CHECK((mode & (std::filesystem::perms::group_all | std::filesystem::perms::others_all)) ==
          std::filesystem::perms::none);
}

TEST_CASE("a file that is not a pipe is left alone") {
    Place place;
    std::ofstream{place.path} << "precious";
    Control control;
    CHECK(control.open(place.path, {}).find("not a named pipe") != std::string::npos);
    std::string text;
    std::ifstream{place.path} >> text;
    CHECK(text == "precious");
    Control nowhere;
    CHECK(!nowhere.open(place.folder.path.string() + "/missing/pipe", {}).empty());
}

TEST_CASE("no thread for it: reported, and signals, descriptors and files are unchanged") {
    Place place;
    const auto before = process_test::descriptors();
    pthread_attr_t usual;
    REQUIRE(pthread_getattr_default_np(&usual) == 0);
    pthread_attr_t boundless = usual;
    REQUIRE(pthread_attr_setstacksize(&boundless, std::size_t{1} << 50) == 0); // exceeds the address space
    REQUIRE(pthread_setattr_default_np(&boundless) == 0);
    Control control;
    const std::string trouble = control.open(place.path, [](const std::string&, const std::string&) { return 0; });
    REQUIRE(pthread_setattr_default_np(&usual) == 0);
    CHECK(trouble.starts_with("MEMSAVER_CONTROL: cannot start a thread"));
    sigset_t blocked;
    REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &blocked) == 0);
    CHECK(sigismember(&blocked, SIGTERM) == 0);
    CHECK(process_test::descriptors() == before);
    CHECK(std::filesystem::is_empty(place.folder.path));
}

TEST_CASE("the process' number in a path") {
    CHECK(Control::expand("/run/engine-%p.pipe") == "/run/engine-" + std::to_string(::getpid()) + ".pipe");
    CHECK(Control::expand("/run/engine") == "/run/engine");
}

TEST_CASE("a child that ends leaves its parent's alone") {
    static Place place;
    static auto* const control = new Control;
    CHECK(control->open(place.path, [](const std::string&, const std::string&) { return 0; }).empty());
    process_test::Child child{[&] { control->remove(); }}; // as `exit` would
    CHECK(child.wait() == 0);
    CHECK(std::filesystem::exists(place.path));
    CHECK(place.state() == "0 ready 0");
    control->remove();
    CHECK(std::filesystem::is_empty(place.folder.path));
}
} // namespace torch_memory_saver_control_test
