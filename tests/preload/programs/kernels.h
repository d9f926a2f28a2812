/* The kernels of these programs: for the simulated GPU in its own format, for a real one as PTX. `mix`, `add` and `spin` take
 * `iters` microseconds; then each of the first n threads changes one of the n 64-bit numbers at `ptr`. `endless` waits until the
 * number at `ptr` is not 0. */
#pragma once

/* One iteration is one microsecond, so "iters" is the duration. */
static const char MODULE[] = "SLUICE-SIM 1\n"
                             "kernel mix params=ptr:u64,n:u32,iters:u32 ns_per_iter=1000 effect=mix\n"
                             "kernel add params=ptr:u64,n:u32,iters:u32 ns_per_iter=1000 effect=add\n"
                             "kernel spin params=ptr:u64,n:u32,iters:u32 ns_per_iter=1000 effect=none\n";

/* Spins, and leaves the thread's number in %i, the address of its 64-bit number in %at and the number in %value. */
#define PTX_BEGIN(name)                                                                                                \
    ".visible .entry " name "(.param .u64 ptr, .param .u32 n, .param .u32 iters)\n{\n"                                 \
    ".reg .pred %p;\n.reg .b32 %i, %w, %us;\n.reg .b64 %began, %now, %limit, %at, %value, %wide;\n"                    \
    "mov.u64 %began, %globaltimer;\nld.param.u32 %us, [iters];\nmul.wide.u32 %limit, %us, 1000;\n"                     \
    "AGAIN:\nmov.u64 %now, %globaltimer;\nsub.u64 %now, %now, %began;\nsetp.lt.u64 %p, %now, %limit;\n"                \
    "@%p bra AGAIN;\nmov.u32 %i, %ctaid.x;\nmov.u32 %w, %ntid.x;\nmul.lo.u32 %i, %i, %w;\nmov.u32 %w, %tid.x;\n"        \
    "add.u32 %i, %i, %w;\nld.param.u32 %w, [n];\nsetp.ge.u32 %p, %i, %w;\n@%p bra END;\nld.param.u64 %at, [ptr];\n"     \
    "cvta.to.global.u64 %at, %at;\nmul.wide.u32 %wide, %i, 8;\nadd.u64 %at, %at, %wide;\nld.global.u64 %value, [%at];\n"
#define PTX_END "st.global.u64 [%at], %value;\nEND:\nret;\n}\n"

static const char PTX[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n" PTX_BEGIN("mix")
    "cvt.u64.u32 %wide, %i;\nmad.lo.u64 %value, %value, 6364136223846793005, 1442695040888963407;\n"
    "add.u64 %value, %value, %wide;\n" PTX_END PTX_BEGIN("add") "add.u64 %value, %value, 1;\n" PTX_END
    ".visible .entry spin(.param .u64 ptr, .param .u32 n, .param .u32 iters)\n{\n"
    ".reg .pred %p;\n.reg .b32 %us;\n.reg .b64 %began, %now, %limit;\n"
    "mov.u64 %began, %globaltimer;\nld.param.u32 %us, [iters];\nmul.wide.u32 %limit, %us, 1000;\n"
    "AGAIN:\nmov.u64 %now, %globaltimer;\nsub.u64 %now, %now, %began;\nsetp.lt.u64 %p, %now, %limit;\n@%p bra AGAIN;\nret;\n}\n"
    ".visible .entry endless(.param .u64 ptr, .param .u32 n, .param .u32 iters)\n{\n"
    ".reg .pred %p;\n.reg .b64 %at, %value;\nld.param.u64 %at, [ptr];\ncvta.to.global.u64 %at, %at;\n"
    "AGAIN:\nld.relaxed.sys.global.u64 %value, [%at];\nsetp.eq.u64 %p, %value, 0;\n@%p bra AGAIN;\nret;\n}\n";
