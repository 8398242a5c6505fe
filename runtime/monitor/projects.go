package monitor

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// Limits of disk space by project quotas, where the monitor is root and the state folder's
// file system has them in force. hutchd names a sandbox, nothing else: the monitor finds
// the folder itself, beneath its own data folder, and chooses the number. The worst that a
// hutchd which was taken over can do is to bound folders of its own, and to use up
// numbers.
//
// A number has limits only while a folder has the number: the folder is made the
// project's first. So a number that has limits and no files was left behind by a daemon
// that was killed, and any monitor may take the limits away.

// The numbers of projects lie above what people write into /etc/projid.
const (
	firstProject = 0x68000000
	numProjects  = 1 << 16
	projectTries = 64
)

// What a sandbox's folder may be called below daemons/, see cmd/hutchd/home.go.
var (
	homeName    = regexp.MustCompile(`^[0-9]{1,10}-[0-9]{1,20}$`)
	sandboxName = regexp.MustCompile(`^sb_[a-z0-9]{1,32}$`)
)

// openData opens the data folder, on whose file system everything is.
func (m *monitor) openData() (*os.File, error) {
	fd, err := unix.Open(m.dataDir(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", m.dataDir(), err)
	}
	return os.NewFile(uintptr(fd), m.dataDir()), nil
}

// hasProjects says whether limits can be held by project quotas, and takes away those
// that dead daemons have left.
func (m *monitor) hasProjects() bool {
	if os.Geteuid() != 0 {
		return false
	}
	data, err := m.openData()
	if err != nil {
		return false
	}
	defer data.Close()
	if !sys.HasProjectQuota(data) {
		return false
	}
	for next := uint32(firstProject); ; next++ {
		q, id, err := sys.NextProjectQuota(data, next)
		if err != nil || id < next || id >= firstProject+numProjects {
			if err != nil && !errors.Is(err, unix.ENOENT) {
				m.log.Warn("sweep project quotas of dead daemons", "err", err)
			}
			return true
		}
		if next = id; q.UsedInodes == 0 && (q.LimitBytes > 0 || q.LimitInodes > 0) {
			if err := sys.SetProjectQuota(data, id, 0, 0); err != nil {
				m.log.Warn("sweep project quotas of dead daemons", "err", err)
			}
		}
	}
}

// limitProject does what hutchd asks for.
func (m *monitor) limitProject(q *monitorapi.Project) error {
	if os.Geteuid() != 0 || !homeName.MatchString(q.Home) || !sandboxName.MatchString(q.Sandbox) || q.Bytes < 0 ||
		q.Inodes < 0 {
		return errors.New("hutchd asks for a project quota that cannot be")
	}
	data, err := m.openData()
	if err != nil {
		return err
	}
	defer data.Close()
	name := path.Join("daemons", q.Home, "sandboxes", q.Sandbox, "fs")
	fd, err := sys.OpenBeneath(int(data.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	folder := os.NewFile(uintptr(fd), name)
	defer folder.Close()
	id, err := sys.Project(folder)
	if err != nil {
		return err
	}
	if ours := id >= firstProject && id < firstProject+numProjects; !ours {
		if q.Bytes == 0 && q.Inodes == 0 {
			return nil
		}
		if id, err = m.takeProject(folder, q.Sandbox); err != nil {
			return err
		}
	}
	return sys.SetProjectQuota(folder, id, uint64(q.Bytes), uint64(q.Inodes))
}

// takeProject makes a folder a project of its own. Another daemon may choose the same
// number at the same time: then both see that it has two folders, and choose again.
func (m *monitor) takeProject(folder *os.File, sandbox string) (uint32, error) {
	h := fnv.New32a()
	fmt.Fprint(h, sandbox)
	for i := range uint32(projectTries) {
		id := firstProject + (h.Sum32()+i)%numProjects
		q, err := sys.GetProjectQuota(folder, id)
		switch {
		case err != nil:
			return 0, err
		case q != sys.ProjectQuota{}:
			continue
		}
		if err := sys.SetProject(folder, id); err != nil {
			return 0, err
		}
		if q, err = sys.GetProjectQuota(folder, id); err != nil {
			return 0, err
		}
		if q.UsedInodes == 1 {
			return id, nil
		}
	}
	return 0, fmt.Errorf("no number of a project from %d on is free, %d were tried", firstProject, projectTries)
}
