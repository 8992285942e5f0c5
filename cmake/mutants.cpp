// Runs test cases for mutants.py, each in a child, with a mutant: `tests --machine=host`. Prints the files of all
// cases. Then reads lines "case mutant limit", with a limit in seconds, and answers each with why the case failed, or
// nothing, its seconds and, for mutant 0, the places that it reached (negative: where no mutant compiles).
#define main test_program
#include "main.cpp"
#undef main

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <iostream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {
constexpr int most = 1 << 15;
mutant::Place before_main[most];

std::string run(const doctest::detail::TestCase& test, char* machine, unsigned limit) {
    const pid_t child = fork();
    if (child < 0) std::abort();
    if (child == 0) {
        setpgid(0, 0);
        alarm(limit);
        const int nothing = open("/dev/null", O_RDWR);
        for (int stream = 0; stream < 3; ++stream) dup2(nothing, stream);
        auto& tests = const_cast<std::set<doctest::detail::TestCase>&>(doctest::detail::getRegisteredTests());
        tests = {test};
        char name[] = "tests", abort[] = "--abort-after=1", exclude[] = "--test-case-exclude=*torture*,*limits*";
        char* arguments[] = {name, machine, abort, exclude, nullptr};
        std::exit(test_program(4, arguments));
    }
    int status = 0;
    waitpid(child, &status, 0);
    kill(-child, SIGKILL); // the test's children
    if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? "" : "exit " + std::to_string(WEXITSTATUS(status));
    return WTERMSIG(status) == SIGALRM ? "hangs" : "signal " + std::to_string(WTERMSIG(status));
}
} // namespace

int mutant::chosen = 0;
mutant::Place* mutant::places = before_main;

int main(int, char** arguments) {
    void* const shared = mmap(nullptr, sizeof before_main, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const auto& tests = doctest::detail::getRegisteredTests();
    const std::vector<doctest::detail::TestCase> cases{tests.begin(), tests.end()};
    for (const auto& test : cases) std::cout << test.m_file << '\n';
    std::cout << std::endl;
    mutant::places = static_cast<mutant::Place*>(shared);
    for (std::size_t number = 0, limit = 0; std::cin >> number >> mutant::chosen >> limit;) {
        std::memset(shared, 0, sizeof before_main);
        const auto begin = std::chrono::steady_clock::now();
        const std::string why = run(cases[number], arguments[1], static_cast<unsigned>(limit));
        std::cout << why << '\t' << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()
                  << '\t';
        for (int place = 1; mutant::chosen == 0 && place < most; ++place) {
            if (mutant::places[place] == mutant::Place::reached) std::cout << place << ' ';
            if (mutant::places[place] == mutant::Place::fixed) std::cout << -place << ' ';
        }
        std::cout << std::endl;
    }
}
