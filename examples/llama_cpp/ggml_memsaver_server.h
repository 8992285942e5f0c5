// The routes that edit.py adds to llama-server. Depends on the server's queue and on its HTTP server only as far as the
// functions below call them.
#pragma once

#include "ggml_memsaver.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

// POST /sleep returns once the server sleeps, which it does when no request is left; POST /wake once it is awake. They
// and GET /memory answer {"sleeping":..., "memory":...}, with what memsaver_get_usage_json() says, or null if it is
// off.
template <class Response, class Http, class Queue>
void ggml_memsaver_routes(Http& http, Queue& queue) {
    const auto answer = [&queue] {
        auto response = std::make_unique<Response>();
        char* usage = nullptr;
        if (memsaver_saver* const saver = ggml_memsaver_saver()) memsaver_get_usage_json(saver, &usage);
        response->data = std::string{"{\"sleeping\":"} + (queue.is_sleeping() ? "true" : "false");
        response->data += std::string{",\"memory\":"} + (usage != nullptr ? usage : "null") + "}";
        memsaver_free_text(usage);
        return response;
    };
    http.get("/memory", [answer](const auto&) { return answer(); });
    http.post("/wake", [answer, &queue](const auto&) {
        queue.wait_until_no_sleep();
        return answer();
    });
    http.post("/sleep", [answer, &queue](const auto&) {
        for (bool wanted = queue.ask_to_sleep(true); wanted; wanted = queue.ask_to_sleep(false)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return answer();
    });
}
