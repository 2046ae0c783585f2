# frisbee.h is one header: nothing has to be built to use it. This builds the examples and runs the tests. GNU make, a C compiler and sh.
#
#     make              the examples, into build/
#     make demo         builds and runs examples/demo.c: the main job, in two processes
#     make demo-frpc    compiles examples/frpc/echo.proto to C, and runs its server and client
#     make test         all tests and examples; needs only cc and make; ends with "N passed, N failed"
#     make check        test, and all of it again under sanitizers, the compile matrix and the interoperation with stock Go peers
#     make sanitize | compile | interop          those parts of check alone
#     make clean
#
# build/tests/test_NAME [CASE]... runs single cases. CC and CFLAGS may be set.

CFLAGS ?= -O1 -g
flags := -std=c99 -Wall -Wextra -pedantic -pthread
asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
tsan := -fsanitize=thread
headers := frisbee.h examples/frpc/proto.h $(wildcard tests/*.h)

# ---- what there is. A new tests/test_NAME.c is found by itself.

examples := $(patsubst examples/%.c,%,$(sort $(wildcard examples/*.c))) frpc frpc_echo_server frpc_echo_client
tests := $(patsubst tests/%.c,%,$(sort $(wildcard tests/test_*.c)))

# Tests over real sockets are built once for each poller of this system; the others bring their own, or need none.
pollers := poll $(if $(filter Linux,$(shell uname -s)),epoll)
twice := $(filter test_loop% test_callbacks%,$(tests))
tests := $(filter-out $(twice),$(tests)) $(foreach poller,$(pollers),$(twice:%=%_$(poller)))
threaded := $(filter test_threads%,$(tests))

# Examples that run by themselves: $(call unattended,DIRECTORY)
unattended = '$(1)/demo' '$(1)/game_loop 60' '$(1)/custom_protocol --self-test' '$(1)/hijack_chat' '$(1)/two_pools' '$(1)/foreign_loop' \
             '$(1)/firmware' '$(1)/chat_broker --self-test' '$(1)/telemetry' '$(1)/file_transfer --self-test' \
             '$(1)/typed' 'sh tests/echo_pair.sh $(1)' 'sh tests/frpc_pair.sh $(1)'

plain_programs := $(examples:%=build/%) $(tests:%=build/tests/%)
sanitized_programs := $(examples:%=build/asan/%) $(tests:%=build/asan/tests/%) $(threaded:%=build/tsan/tests/%) build/tsan/two_pools
scripts := $(wildcard tests/*/run.sh tests/interop/*/run.sh)

# Arguments of tests/run.sh. A program that could not be built counts as failed there, so that building goes on (-k) and the sum is always told.
run_plain := -t 300 $(call unattended,build) $(tests:%=build/tests/%)
run_sanitized := -t 900 $(call unattended,build/asan) $(tests:%=build/asan/tests/%) $(threaded:%=build/tsan/tests/%) build/tsan/two_pools

# ---- targets

.PHONY: all demo demo-frpc test check sanitize compile interop clean plain_programs sanitized_programs

all: $(examples:%=build/%)

demo: build/demo
	build/demo

demo-frpc: build/frpc_echo_server build/frpc_echo_client
	sh tests/frpc_pair.sh build

test:
	-$(MAKE) -k --no-print-directory plain_programs
	@sh tests/run.sh $(run_plain)

check:
	-$(MAKE) -k --no-print-directory plain_programs sanitized_programs
	@sh tests/run.sh $(run_plain) $(run_sanitized) -t 1200 $(scripts)

sanitize:
	-$(MAKE) -k --no-print-directory sanitized_programs
	@sh tests/run.sh $(run_sanitized)

compile interop:
	@sh tests/run.sh -v -t 1200 tests/$@/run.sh

clean:
	rm -rf build

plain_programs: $(plain_programs)
sanitized_programs: $(sanitized_programs)

# ---- how each is built: $(eval $(call variant,DIRECTORY,FLAGS))

.PRECIOUS: build/gen/%.frpc.h
build/gen/%.frpc.h: examples/frpc/%.proto build/frpc
	@mkdir -p $(@D)
	build/frpc -I examples/frpc -o build/gen $<

define variant
$(1)/frpc: examples/frpc/frpc.c examples/frpc/proto.h
	@mkdir -p $$(@D) && rm -f $$@
	$$(CC) $$(flags) $$(CFLAGS) $(2) $$< -o $$@

$(1)/frpc_%: examples/frpc/%.c build/gen/echo.frpc.h frisbee.h
	@mkdir -p $$(@D) && rm -f $$@
	$$(CC) $$(flags) $$(CFLAGS) $(2) -I. -Ibuild/gen $$< -o $$@

$(1)/%: examples/%.c frisbee.h
	@mkdir -p $$(@D) && rm -f $$@
	$$(CC) $$(flags) $$(CFLAGS) $(2) -I. $$< -o $$@

$(1)/tests/%: tests/%.c $$(headers)
	@mkdir -p $$(@D) && rm -f $$@
	$$(CC) $$(flags) $$(CFLAGS) $(2) -DFRISBEE_CHECK $$< -o $$@

$(1)/tests/%_poll: tests/%.c $$(headers)
	@mkdir -p $$(@D) && rm -f $$@
	$$(CC) $$(flags) $$(CFLAGS) $(2) -DFRISBEE_CHECK -DFRISBEE_POLLER=FRISBEE_POLLER_POLL $$< -o $$@

$(1)/tests/%_epoll: tests/%.c $$(headers)
	@mkdir -p $$(@D) && rm -f $$@
	$$(CC) $$(flags) $$(CFLAGS) $(2) -DFRISBEE_CHECK -DFRISBEE_POLLER=FRISBEE_POLLER_EPOLL $$< -o $$@
endef

$(eval $(call variant,build))
$(eval $(call variant,build/asan,$(asan)))
$(eval $(call variant,build/tsan,$(tsan)))
