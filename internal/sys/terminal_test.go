package sys

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadMaster: the last words of a program that ends behind them arrive. With read(2)
// one of some hundreds to thousands is late.
func TestReadMaster(t *testing.T) {
	for range 5_000 {
		lastWords(t)
	}
}

func lastWords(t *testing.T) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := slave.WriteString("last")
		wrote <- errors.Join(err, slave.Close())
	}()
	got, buf := "", make([]byte, 64)
	for !errors.Is(err, unix.EIO) { // reads as fast as can be: that is the race
		n, err = ReadMasterFD(master, buf)
		got += string(buf[:max(n, 0)])
	}
	if err := <-wrote; err != nil || got != "last" {
		t.Fatalf("read %q of what was written; %v", got, err)
	}
}
