//go:build ignore

// SPDX-License-Identifier: Apache-2.0
//
// What the kernel itself refuses to sandboxes. hutch-netd attaches these programs once, to
// the cgroup that holds the sandboxes; which sandbox a process or a packet belongs to is its
// ancestor cgroup one level below. ../DESIGN.md says why it is built like this.
//
// Only UAPI headers, and only what the verifier takes from a loader with CAP_BPF and
// CAP_NET_ADMIN: no pointer is moved by a variable, no helper that needs CAP_PERFMON, and what
// stands on the stack for a helper is written in words of eight bytes: kernels before 6.8 let
// nobody without CAP_PERFMON write a part of a word that was written whole, and the compiler
// chooses how it writes the parts of a struct.
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#define SEC(name) __attribute__((section(name), used))
#define inline_always inline __attribute__((always_inline))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "constants in network byte order are written for little-endian machines"
#endif
#define net16(x) ((__u16)__builtin_bswap16(x))
#define net32(x) ((__u32)__builtin_bswap32(x))

#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2

// Numbers of helpers are UAPI.
static void *(*const map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*const ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u64 (*const get_current_pid_tgid)(void) = (void *)BPF_FUNC_get_current_pid_tgid;
static __u64 (*const get_current_uid_gid)(void) = (void *)BPF_FUNC_get_current_uid_gid;
static __u64 (*const get_current_cgroup_id)(void) = (void *)BPF_FUNC_get_current_cgroup_id;
static __u64 (*const get_current_ancestor_cgroup_id)(int level) = (void *)BPF_FUNC_get_current_ancestor_cgroup_id;
static __u64 (*const skb_ancestor_cgroup_id)(struct __sk_buff *skb, int level) = (void *)BPF_FUNC_skb_ancestor_cgroup_id;
static long (*const skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)BPF_FUNC_skb_load_bytes;
static void *(*const ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*const ringbuf_submit)(void *data, __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static long (*const set_retval)(int retval) = (void *)BPF_FUNC_set_retval;

// Constants that the loader sets.
//
// level is that of the sandboxes' cgroups; the root of the hierarchy is 0.
const volatile __u32 level = 0;
// errnos says that the kernel has bpf_set_retval here (Linux 6.1). Without it every refusal is
// EPERM.
const volatile __u32 errnos = 0;

// What follows is shared with ../types.go, whose test compares sizes and offsets.

enum verdict { VERDICT_ALLOW = 1, VERDICT_DENY = 2 }; // 0, of a zeroed value, allows nothing

enum hook { HOOK_CONNECT = 1, HOOK_SENDMSG = 2, HOOK_SOCKET = 3, HOOK_EGRESS = 4 };

enum {
	FLAG_TELL_ALLOWED = 1, // events of allowed connections, too
	FLAG_EXECS = 2,	       // cgroups below the sandbox's may have entries of their own
};
enum { PROTO_TCP = 1, PROTO_UDP = 2 };

// What a sandbox may reach is a table: the keys that begin with its number. Another one is
// filled first and then named here, so that a policy changes at once.
struct sandbox {
	__u64 table;
	__u32 flags;
	__s32 error; // that a refused program sees, positive
};

// An address is 16 bytes, IPv4 as ::ffff:0:0/96: the same destination comes to connect4 and
// to connect6.
struct address_key {
	__u64 table;
	__u32 ip[4];
	__u16 port; // network byte order; 0 is any
	__u8 proto; // IPPROTO_TCP or IPPROTO_UDP
	__u8 zero[5];
};

struct address {
	__u64 expires; // CLOCK_MONOTONIC, ns; 0 is never
	__u32 verdict;
	__u32 rule;
};

// The table is in two halves: as a __u64 it would have to be packed.
struct cidr_key {
	__u32 prefix; // bits, those of the table included
	__u32 table[2];
	__u32 ip[4];
};

struct cidr {
	__u32 verdict;
	__u32 protos; // PROTO_*, of an allowed one
	__u32 rule;
};

struct counts {
	__u64 allowed;
	__u64 denied;
	__u64 lost; // events that found the ring full
};

struct event {
	__u64 sandbox;
	__u64 cgroup; // of the process; 0 from HOOK_EGRESS
	__u64 time;   // CLOCK_MONOTONIC, ns
	__u32 ip[4];
	__u32 pid; // in the initial pid namespace; 0 from HOOK_EGRESS, where current is anybody
	__u32 uid; // in the initial user namespace
	__u32 rule;
	__s32 error;
	__u16 port;     // network byte order
	__u16 protocol; // IPPROTO_*
	__u8 hook;
	__u8 verdict;
	__u8 type; // SOCK_*, of HOOK_SOCKET
	__u8 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct sandbox);
} sandboxes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072); // 2 MiB of buckets
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address_key);
	__type(value, struct address);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC); // a trie knows no other
	__type(key, struct cidr_key);
	__type(value, struct cidr);
} cidrs SEC(".maps");

// By sandbox; 0 counts for those that nobody knows.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192 + 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct counts);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

static inline_always int loopback(const __u32 ip[4])
{
	if (ip[0] || ip[1])
		return 0;
	if (ip[2] == net32(0xffff)) // 0.0.0.0 is this machine, too
		return (ip[3] & 0xff) == 127 || !ip[3];
	return !ip[2] && (!ip[3] || ip[3] == net32(1));
}

// pair is two neighbours in memory as one word.
static inline_always __u64 pair(__u32 low, __u32 high)
{
	return low | (__u64)high << 32;
}

// known is the protocol of a key: what runs over it is the same for a policy.
static inline_always __u8 known(__u32 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
	case IPPROTO_MPTCP:
		return IPPROTO_TCP;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
		return IPPROTO_UDP;
	}
	return 0;
}

// What a lookup has found is copied at once, and used where it was compared with 0: kernels also try the
// branches that are never taken, as a processor might, and there a second comparison holds nothing back.
#define at_once() asm volatile("" ::: "memory")

// exact is the verdict on an address and a port; 0 when there is none.
static inline_always __u32 exact(const __u64 *key, struct event *e)
{
	const struct address *a = map_lookup(&addresses, key);
	__u64 expires;
	__u32 verdict, rule;

	if (!a)
		return 0;
	expires = a->expires;
	verdict = a->verdict;
	rule = a->rule;
	at_once();
	if (expires && ktime_get_ns() >= expires)
		return 0;
	e->rule = rule;
	return verdict == VERDICT_ALLOW ? VERDICT_ALLOW : VERDICT_DENY;
}

// decide is the policy: the address with its port, the address with any port, the longest
// prefix; else no.
static inline_always __u32 decide(__u64 table, struct event *e)
{
	__u8 proto = known(e->protocol);
	__u64 upper = pair(e->ip[0], e->ip[1]), lower = pair(e->ip[2], e->ip[3]);
	__u64 key[] = {table, upper, lower, e->port | (__u64)proto << 16}; // a struct address_key
	__u64 range[] = {
		// A struct cidr_key, and four bytes that nobody reads.
		pair(64 + 128, (__u32)table),
		pair((__u32)(table >> 32), e->ip[0]),
		pair(e->ip[1], e->ip[2]),
		e->ip[3],
	};
	struct cidr *c;
	__u32 verdict, protos;

	_Static_assert(sizeof(key) == sizeof(struct address_key), "the words are a struct address_key");
	_Static_assert(sizeof(range) == sizeof(struct cidr_key) + 4, "the words begin with a struct cidr_key");

	if (loopback(e->ip))
		return VERDICT_ALLOW;
	verdict = exact(key, e);
	if (!verdict) {
		key[3] = (__u64)proto << 16;
		verdict = exact(key, e);
	}
	if (verdict)
		return verdict;
	c = map_lookup(&cidrs, range);
	if (!c)
		return VERDICT_DENY;
	verdict = c->verdict;
	protos = c->protos;
	e->rule = c->rule;
	at_once();
	if (verdict == VERDICT_ALLOW && ((proto == IPPROTO_TCP && (protos & PROTO_TCP)) || (proto == IPPROTO_UDP && (protos & PROTO_UDP))))
		return VERDICT_ALLOW;
	return VERDICT_DENY;
}

static __attribute__((noinline)) void count(const struct event *e, __u64 lost)
{
	__u64 nobody = 0;
	struct counts *n = map_lookup(&counters, &e->sandbox);

	if (!n)
		n = map_lookup(&counters, &nobody);
	if (!n)
		return;
	// All: a choice becomes a pointer that a variable moves.
	__sync_fetch_and_add(&n->allowed, e->verdict == VERDICT_ALLOW);
	__sync_fetch_and_add(&n->denied, e->verdict != VERDICT_ALLOW);
	__sync_fetch_and_add(&n->lost, lost);
}

// put counts a verdict and puts it into the ring. It is a function of its own, so that the
// object describes struct event.
static __attribute__((noinline)) void put(const struct event *e, int wanted)
{
	struct event *slot;

	if (!wanted) {
		count(e, 0);
		return;
	}
	slot = ringbuf_reserve(&events, sizeof(*slot), 0);
	if (!slot) {
		count(e, 1);
		return;
	}
	count(e, 0);
	*slot = *e;
	ringbuf_submit(slot, 0);
}

static inline_always void tell(const struct event *e, int wanted)
{
	__u64 words[] = {
		e->sandbox,
		e->cgroup,
		e->time,
		pair(e->ip[0], e->ip[1]),
		pair(e->ip[2], e->ip[3]),
		pair(e->pid, e->uid),
		pair(e->rule, (__u32)e->error),
		e->port | (__u64)e->protocol << 16 | (__u64)e->hook << 32 | (__u64)e->verdict << 40 | (__u64)e->type << 48,
	};
	_Static_assert(sizeof(words) == sizeof(*e), "the words are a struct event");
	put((const struct event *)words, wanted);
}

// find copies a sandbox's entry, or an exec's, and says whether there is one; else what it copies is zero.
static inline_always int find(__u64 cgroup, struct sandbox *s)
{
	const struct sandbox *found = map_lookup(&sandboxes, &cgroup);

	s->table = s->flags = s->error = 0;
	if (!found)
		return 0;
	*s = (struct sandbox){.table = found->table, .flags = found->flags, .error = found->error};
	at_once();
	return 1;
}

// clamp lets no more through than the errors that a network has, EACCES where nobody has chosen: the value comes from an
// unprivileged process, and programs trust errno.
static inline_always int clamp(int error)
{
	switch (error) {
	case EPERM:
	case ENETUNREACH:
	case ECONNREFUSED:
	case EHOSTUNREACH:
		return error;
	}
	return EACCES;
}

// refuse is the return value of a hook that says no. Where errnos is 0 the loader takes the call out.
static inline_always int refuse(int error)
{
	set_retval(-error);
	return 0;
}

static inline_always void who(struct event *e)
{
	e->sandbox = get_current_ancestor_cgroup_id(level);
	e->cgroup = get_current_cgroup_id();
	e->time = ktime_get_ns();
	e->pid = get_current_pid_tgid() >> 32;
	e->uid = (__u32)get_current_uid_gid();
}

static inline_always int destination(struct event *e, __u32 protocol)
{
	struct sandbox s;
	int allowed;

	who(e);
	e->protocol = protocol;
	allowed = find(e->sandbox, &s) && decide(s.table, e) == VERDICT_ALLOW;
	if (allowed && (s.flags & FLAG_EXECS)) {
		// An exec's policy takes away from its sandbox's, and gives nothing.
		struct sandbox own;
		if (find(get_current_ancestor_cgroup_id(level + 1), &own)) {
			s = own;
			allowed = decide(s.table, e) == VERDICT_ALLOW;
		}
	}
	e->verdict = allowed ? VERDICT_ALLOW : VERDICT_DENY;
	if (!allowed)
		e->error = errnos ? clamp(s.error) : EPERM;
	tell(e, !allowed || (s.flags & FLAG_TELL_ALLOWED));
	return allowed ? 1 : refuse(e->error);
}

static inline_always int destination4(struct bpf_sock_addr *ctx, __u8 hook)
{
	struct event e = {.ip = {0, 0, net32(0xffff), ctx->user_ip4}, .port = ctx->user_port, .hook = hook};
	return destination(&e, ctx->protocol);
}

static inline_always int destination6(struct bpf_sock_addr *ctx, __u8 hook)
{
	struct event e = {
		.ip = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]},
		.port = ctx->user_port,
		.hook = hook,
	};
	return destination(&e, ctx->protocol);
}

SEC("cgroup/connect4") int connect4(struct bpf_sock_addr *ctx) { return destination4(ctx, HOOK_CONNECT); }
SEC("cgroup/connect6") int connect6(struct bpf_sock_addr *ctx) { return destination6(ctx, HOOK_CONNECT); }
SEC("cgroup/sendmsg4") int sendmsg4(struct bpf_sock_addr *ctx) { return destination4(ctx, HOOK_SENDMSG); }
SEC("cgroup/sendmsg6") int sendmsg6(struct bpf_sock_addr *ctx) { return destination6(ctx, HOOK_SENDMSG); }

// A ping socket's sendto, and what a raw socket sends, come to no hook that sees an address.
SEC("cgroup/sock_create") int sock_create(struct bpf_sock *sk)
{
	struct event e = {.hook = HOOK_SOCKET, .verdict = VERDICT_DENY, .protocol = sk->protocol, .type = sk->type};
	struct sandbox s;
	int present;

	who(&e);
	present = find(e.sandbox, &s);
	if (present && e.type == SOCK_STREAM && (!e.protocol || known(e.protocol) == IPPROTO_TCP))
		return 1;
	if (present && e.type == SOCK_DGRAM && (!e.protocol || known(e.protocol) == IPPROTO_UDP))
		return 1;
	e.error = errnos ? clamp(s.error) : EPERM;
	tell(&e, 1);
	return refuse(e.error);
}

// ports reads what of the transport's header a verdict needs, and says whether one is needed:
// of TCP only what opens a connection.
static inline_always int ports(struct __sk_buff *skb, __u32 offset, struct event *e)
{
	__u16 port;
	__u8 flags;

	if (known(e->protocol)) {
		if (skb_load_bytes(skb, offset + 2, &port, sizeof(port)))
			return 1; // it has no port: no rule names it
		e->port = port;
	}
	if (known(e->protocol) != IPPROTO_TCP || skb_load_bytes(skb, offset + 13, &flags, sizeof(flags)))
		return 1;
	return (flags & 0x12) == 0x02; // SYN without ACK
}

// egress stops what came past the hooks above: a policy that changed under a connected UDP
// socket, a protocol without a hook. Retransmits and softirqs have another current, so that
// the sandbox is that of the socket.
SEC("cgroup_skb/egress") int egress(struct __sk_buff *skb)
{
	struct event e = {.hook = HOOK_EGRESS, .error = EPERM};
	struct sandbox s;
	__u32 offset;

	if (skb->protocol == net16(ETH_P_IP)) {
		struct iphdr ip;
		if (skb_load_bytes(skb, 0, &ip, sizeof(ip)))
			return 0;
		e.ip[2] = net32(0xffff);
		e.ip[3] = ip.daddr;
		e.protocol = ip.protocol;
		offset = (__u32)ip.ihl * 4;
		if (ip.frag_off & net16(0x1fff)) // the kernel fragments later; this one was made by hand
			e.protocol = IPPROTO_RAW;
	} else if (skb->protocol == net16(ETH_P_IPV6)) {
		struct ipv6hdr ip;
		if (skb_load_bytes(skb, 0, &ip, sizeof(ip)))
			return 0;
		e.ip[0] = ip.daddr.in6_u.u6_addr32[0];
		e.ip[1] = ip.daddr.in6_u.u6_addr32[1];
		e.ip[2] = ip.daddr.in6_u.u6_addr32[2];
		e.ip[3] = ip.daddr.in6_u.u6_addr32[3];
		e.protocol = ip.nexthdr; // extension headers take CAP_NET_RAW: no rule names them
		offset = sizeof(ip);
	} else {
		return 0;
	}
	if (!ports(skb, offset, &e))
		return 1;

	e.sandbox = skb_ancestor_cgroup_id(skb, level);
	if (find(e.sandbox, &s) && decide(s.table, &e) == VERDICT_ALLOW)
		return 1; // its connect was counted
	e.verdict = VERDICT_DENY;
	e.time = ktime_get_ns();
	tell(&e, 1);
	return 0;
}

char _license[] SEC("license") = "Apache-2.0";
