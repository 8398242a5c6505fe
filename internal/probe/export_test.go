package probe

// What the scenarios use, which are outside of the package as internal/testenv imports it.
const SandboxLike = sandboxLike

var (
	Folders      = folders
	MountOverlay = mountOverlay
)
