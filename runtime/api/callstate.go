package api

// The methods snapshot.*.
var (
	CallSnapCreate = Call[SnapshotCreateParams, Snapshot]{Name: "snapshot.create",
		Summary: "Keeps what the files of a sandbox are now, and what it is; the sandbox stands still meanwhile.",
		Example: `{"sandbox":"fix","name":"green"}`,
		Returns: exampleSnapshot}
	CallSnapList = Call[SnapshotListParams, Snapshots]{Name: "snapshot.list",
		Summary: "Lists the caller's snapshots, oldest first.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"snapshots":[` + exampleSnapshot + `]}`}
	CallSnapDiff = Call[SnapshotDiffParams, SnapshotDiff]{Name: "snapshot.diff",
		Summary: "Lists which files of a sandbox are others than in a snapshot, now or in another snapshot, as a " +
			"diff if asked to.",
		Example: `{"snapshot":"green","unified":true}`,
		Returns: `{"snapshot":"sn_pvhdlpc6elzx","sandbox":"sb_r5hrdezjoqxe","changes":[{"path":"/workspace/b",` +
			`"kind":"added","type":"file","mode":"0644","size":2}],` +
			`"diff":"--- /dev/null\n+++ b/workspace/b\n@@ -0,0 +1 @@\n+b\n"}`}
	CallSnapRestore = Call[SnapshotRestoreParams, SnapshotRestored]{Name: "snapshot.restore",
		Summary: "Gives a sandbox the files that it had when a snapshot was taken of it; its processes end.",
		FDs:     true,
		Example: `{"snapshot":"green"}`,
		Returns: `{"snapshot":"sn_pvhdlpc6elzx",` + exampleEnded + `,` + exampleSandboxBody + `}`}
	CallSnapRemove = Call[SnapshotParams, Empty]{Name: "snapshot.remove",
		Summary: "Removes a snapshot; what was forked from it goes on.",
		Example: `{"snapshot":"green"}`}
)

// The methods checkpoint.*.
var (
	CallCheckList = Call[SandboxParams, Checkpoints]{Name: "checkpoint.list",
		Summary: "Lists what the files of a sandbox were before its last calls, oldest first.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"checkpoints":[{"id":"cp_z2zknkkviu3l","call":"tc_vvc7bulpwwlc","tool":"code.run",` +
			`"time":"2026-11-28T09:30:00Z","bytes":17531,"inodes":5,"undone":false}],"total_bytes":17531}`}
	CallCheckRestore = Call[CheckpointRestoreParams, CheckpointRestored]{Name: "checkpoint.restore",
		Summary: "Gives a sandbox the files that it had before a call; its processes end.",
		FDs:     true,
		Example: `{"sandbox":"fix","to_call":"tc_vvc7bulpwwlc"}`,
		Returns: `{"to_call":"tc_vvc7bulpwwlc","call":"tc_2u4h3tw4fly5","undone":["tc_vvc7bulpwwlc"],` + exampleEnded +
			`,` + exampleSandboxBody + `}`}
)

// The methods template.*.
var (
	CallTemplateCreate = Call[TemplateCreateParams, Template]{Name: "template.create",
		Summary: "Keeps what sandboxes can be made by that name it: an image or another template, limits, a network " +
			"policy, steps that are run once, what is started in each sandbox and waited for. It builds nothing.",
		Notes: "The fd that context refers to is the read end of a pipe with the archive of what steps copy.",
		FDs:   true, EndsWithCaller: true,
		Example: `{"name":"tools","image":"debian:13","steps":[{"run":"apt-get update && apt-get install -y jq"}],` +
			`"build":{"network":{"mode":"allow","allow":["deb.debian.org"]}}}`,
		Returns: exampleTemplate}
	CallTemplateList = Call[Empty, Templates]{Name: "template.list",
		Summary: "Lists the templates, also those that come with hutch.",
		Returns: `{"templates":[` + exampleTemplate + `]}`}
	CallTemplateInspect = Call[TemplateParams, Template]{Name: "template.inspect",
		Summary: "Describes a template, and what came of its steps.",
		Example: `{"template":"tools"}`,
		Returns: exampleTemplate}
	CallTemplateBuild = Call[TemplateBuildParams, TemplateBuildResult]{Name: "template.build",
		Summary: "Runs the steps of a template in a sandbox and keeps what they have written, unless nothing has " +
			"changed. With progress, what they write is told as it comes.",
		Progress: true, EndsWithCaller: true,
		Example: `{"template":"tools"}`,
		Returns: `{"template":` + exampleTemplate + `,"ran":1,"cached":false}`}
	CallTemplateRemove = Call[TemplateParams, TemplateRemoved]{Name: "template.remove",
		Summary: "Removes a template, with what its steps have made; sandboxes of it go on.",
		Example: `{"template":"tools"}`,
		Returns: `{"sandboxes":0,"pooled":0}`}
)

// The methods workspace.*.
var (
	CallWorkDiff = Call[WorkspaceDiffParams, WorkspaceDiff]{Name: "workspace.diff",
		Summary: "Lists what a sandbox has changed in its workspace of mode overlay, as a diff if asked to.",
		Example: `{"sandbox":"fix","unified":true}`,
		Returns: `{"path":"/home/me/project","changes":[{"path":"b","kind":"added","type":"-","mode":"0644",` +
			`"size":2}],"digest":"ab24ac5673f21ec3f75281a384abb9fc12a497623eddd54c1c304fcdd1856f74"}`}
	CallWorkApply = Call[WorkspaceApplyParams, WorkspaceApplied]{Name: "workspace.apply",
		Summary: "Brings what a sandbox has changed into the user's folder.",
		FDs:     true,
		Example: `{"sandbox":"fix","paths":["src"]}`,
		Returns: `{"applied":["src/main.go"],"failed":[]}`}
	CallWorkDiscard = Call[WorkspaceParams, WorkspaceDiscarded]{Name: "workspace.discard",
		Summary: "Makes what a sandbox has changed in its workspace as it is in the user's folder.",
		Example: `{"sandbox":"fix"}`,
		Returns: `{"discarded":["src/main.go"],"failed":[]}`}
)

// The methods volume.*.
var (
	CallVolumeCreate = Call[VolumeParams, Volume]{Name: "volume.create",
		Summary: "Makes an empty volume, which sandboxes mount by its name and which outlives them.",
		Notes:   "One that a sandbox mounts with mode rw is made when it is missing.",
		Example: `{"name":"cache"}`,
		Returns: `{"name":"cache","created":"2026-11-28T09:30:00Z","sandboxes":[]}`}
	CallVolumeList = Call[VolumeListParams, Volumes]{Name: "volume.list",
		Summary: "Lists the caller's volumes by name.",
		Example: `{"usage":true}`,
		Returns: `{"volumes":[{"name":"cache","created":"2026-11-28T09:30:00Z","sandboxes":["sb_r5hrdezjoqxe"],` +
			`"bytes":8192,"inodes":2}]}`}
	CallVolumeRemove = Call[VolumeParams, Empty]{Name: "volume.remove",
		Summary: "Removes a volume, which no sandbox may have mounted, with all that is in it.",
		Example: `{"name":"cache"}`}
)

// The methods image.*.
var (
	CallImagePull = Call[PullParams, Image]{Name: "image.pull",
		Summary:  "Fetches an image into the store.",
		Progress: true,
		Example:  `{"ref":"debian:13"}`,
		Returns:  exampleImage}
	CallImageList = Call[Empty, Images]{Name: "image.list",
		Summary: "Lists the images in the store.",
		Returns: `{"images":[` + exampleImage + `]}`}
	CallImageInspect = Call[RefParams, Image]{Name: "image.inspect",
		Summary: "Returns one image's record.",
		Example: `{"ref":"host"}`,
		Returns: exampleImage}
	CallImageRemove = Call[RefParams, Empty]{Name: "image.remove",
		Summary: "Removes an image reference and the layers that nothing else needs.",
		Example: `{"ref":"debian:13"}`}
	CallImageImport = Call[ImportParams, Image]{Name: "image.import",
		Summary: "Makes an image of an archive, or of a root file system as tar, that comes as a file or through a " +
			"pipe.",
		Notes: "The fd is a file, or the read end of a pipe that was made for the call.",
		FDs:   true, Progress: true,
		Example: `{"ref":"tools:1","format":"oci-archive","fds":1,"fd":0}`,
		Returns: exampleImage}
	CallImageCommit = Call[CommitParams, Committed]{Name: "image.commit",
		Summary: "Makes an image of what a sandbox has written and the image below; the sandbox stands still " +
			"meanwhile.",
		Progress: true,
		Example:  `{"sandbox":"fix","ref":"tools:1","changes":{"cmd":["sh"]}}`,
		Returns:  `{"image":` + exampleImage + `,"left_out":0}`}
	CallImageExport = Call[ExportParams, Exported]{Name: "image.export",
		Summary: "Writes an image into a file or a pipe: as an archive, or its files alone as one root file system.",
		Notes:   "The fd is a file, or the write end of a pipe that was made for the call.",
		FDs:     true,
		Example: `{"ref":"tools:1","format":"oci-archive","fds":1,"fd":0}`,
		Returns: `{"id":"sha256:ae5e81b4","layers":["sha256:77f2c1a0"],"bytes":49283072}`}
	CallImagePush = Call[PushParams, Pushed]{Name: "image.push",
		Summary:  "Sends an image to a registry.",
		Progress: true,
		Example:  `{"ref":"tools:1","target":"ghcr.io/me/tools:1"}`,
		Returns: `{"ref":"ghcr.io/me/tools:1","digest":"sha256:5be21f0c","id":"sha256:ae5e81b4",` +
			`"layers":["sha256:77f2c1a0"]}`}
	CallImageLogin = Call[LoginParams, Login]{Name: "image.login",
		Summary: "Asks a registry whether it knows a user and the password and, if so, stores them for pulls and " +
			"pushes.",
		Example: `{"registry":"ghcr.io","username":"me","password":"a token"}`,
		Returns: `{"registry":"ghcr.io","username":"me","stored":"/home/me/.config/containers/auth.json"}`}
	CallImageLogout = Call[RegistryParams, Empty]{Name: "image.logout",
		Summary: "Removes the credentials of a registry.",
		Example: `{"registry":"ghcr.io"}`}
	CallImageGetLogin = Call[RegistryParams, Login]{Name: "image.get_login",
		Summary: "Says as whom pulls from a registry come; never the password.",
		Example: `{"registry":"ghcr.io"}`,
		Returns: `{"registry":"ghcr.io","username":"me"}`}
	CallImageTag = Call[TagParams, Image]{Name: "image.tag",
		Summary: "Gives an image one more name.",
		Example: `{"ref":"debian:13","target":"tools:base"}`,
		Returns: exampleImage}
	CallImageDu = Call[Empty, ImageDisk]{Name: "image.du",
		Summary: "Says what images take on disk.",
		Returns: `{"images":[{"ref":"docker.io/library/debian:13","id":"sha256:ae5e81b4","bytes":124030976,` +
			`"unique_bytes":124030976,"in_use":true}],"bytes":126943232,"unused_bytes":0}`}
	CallImagePrune = Call[PruneParams, Pruned]{Name: "image.prune",
		Summary: "Removes layers that no image has, and if asked to images that no sandbox uses.",
		Example: `{"all":true}`,
		Returns: `{"removed":["docker.io/library/debian:12"],"bytes":121634816}`}
	CallImageVerify = Call[VerifyParams, Verified]{Name: "image.verify",
		Summary: "Reads the files of images and compares them with what was unpacked; fetches damaged layers again " +
			"if asked to.",
		Notes:   "Damage is no error: see the status of each layer.",
		Example: `{"ref":"debian:13"}`,
		Returns: `{"layers":[{"layer":"layers/sha256-77f2c1a0","status":"good",` +
			`"images":["docker.io/library/debian:13"],"files":4211,"bytes":118321152}]}`}
)
