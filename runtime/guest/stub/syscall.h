/*
 * Raw system calls without a C library, and the entry point, for the small
 * programs of hutch: stub.c and runtime/launch/swap/swap.c. Define ENTRY, the
 * name of the function to begin with, before including this.
 */
#include <asm/unistd.h>

/* Raw system calls: the result is the kernel's, -errno on failure. */
#if defined(__x86_64__)
static long sys6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
/* The ABI wants a 16-byte aligned stack before a call. */
__asm__(".globl _start\n_start:\n\txor %ebp,%ebp\n\tand $-16,%rsp\n\tcall " ENTRY "\n\thlt\n");
#elif defined(__aarch64__)
static long sys6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
__asm__(".globl _start\n_start:\n\tmov x29,#0\n\tmov x30,#0\n\tb " ENTRY "\n");
#else
#error "unsupported architecture"
#endif

#define sys(nr, a, b, c, d, e) \
	sys6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

/* Compilers turn loops and initialisers into calls of this. */
void *memset(void *dst, int c, unsigned long n)
{
	char *p = dst;
	while (n--)
		*(volatile char *)p++ = (char)c;
	return dst;
}
