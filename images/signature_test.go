package images

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// signedText is what a signature signs: this manifest is called so (containers-signature(5);
// cosign's differs in the type).
func signedText(t *testing.T, kind, ref, digest string) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"critical": map[string]any{
			"type":     kind,
			"image":    map[string]string{"docker-manifest-digest": digest},
			"identity": map[string]string{"docker-reference": ref},
		},
		"optional": map[string]any{"creator": "test"},
	})
	must(t, err)
	return data
}

// signatures writes registries.d of the HOME of TestMain for one registry.
func signatures(t *testing.T, registry, text string) {
	t.Helper()
	dir := filepath.Join(os.Getenv("HOME"), ".config/containers/registries.d")
	must(t, os.MkdirAll(dir, 0o700))
	t.Cleanup(func() { must(t, os.RemoveAll(filepath.Dir(dir))) })
	must(t, os.WriteFile(filepath.Join(dir, "test.yaml"), []byte("docker:\n  "+strings.TrimPrefix(registry, "http://")+
		":\n    "+text+"\n"), 0o600))
}

// pullSigned pulls under a policy that wants a signature of this kind.
func pullSigned(t *testing.T, ref, requirement string) error {
	t.Helper()
	policy := `{"default":[{"type":"reject"}],"transports":{"docker":{"":[` + requirement + `]}}}`
	s := openStore(t, Options{PolicyFile: writeFile(t, "policy.json", policy)})
	_, err := s.Pull(t.Context(), ref, PullOptions{})
	if err != nil {
		wantClean(t, s, 0)
	}
	return err
}

// TestSignedBy: what is signed by the key of the policy is pulled; what is signed by another
// key, for another image or under another name, or not at all, is not.
func TestSignedBy(t *testing.T) {
	registry := it.StartRegistry(t)
	key := func() *openpgp.Entity {
		e, err := openpgp.NewEntity("test", "", "test@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoRSA,
			RSABits: 2048})
		must(t, err)
		return e
	}
	ours, theirs := key(), key()
	var public bytes.Buffer
	must(t, ours.Serialize(&public))
	requirement := `{"type":"signedBy","keyType":"GPGKeys","keyData":"` +
		base64.StdEncoding.EncodeToString(public.Bytes()) + `"}`
	lookaside := t.TempDir()
	signatures(t, registry, "lookaside: file://"+lookaside)
	other, err := it.Push(registry, "other", "v1",
		it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.Text("f", "x")), it.Gzip)}})
	must(t, err)
	for name, tt := range map[string]struct {
		by       *openpgp.Entity
		ref, sum string // that the signature names, when not the image's
		ok       bool
	}{
		"signed": {by: ours, ok: true}, "unsigned": {}, "another-key": {by: theirs},
		"another-image": {by: ours, sum: other}, "another-name": {by: ours, ref: it.Ref(registry, "other", "v1")},
	} {
		digest, err := it.Push(registry, name, "v1", twoLayers())
		must(t, err)
		ref := it.Ref(registry, name, "v1")
		if tt.by != nil {
			signs, sum := ref, digest
			if tt.ref != "" {
				signs = tt.ref
			}
			if tt.sum != "" {
				sum = tt.sum
			}
			dir := filepath.Join(lookaside, name+"@"+strings.Replace(digest, ":", "=", 1))
			must(t, os.Mkdir(dir, 0o700))
			var b bytes.Buffer
			w, err := openpgp.Sign(&b, tt.by, nil, nil)
			must(t, err)
			_, err = w.Write(signedText(t, "atomic container signature", signs, sum))
			must(t, err)
			must(t, w.Close())
			must(t, os.WriteFile(filepath.Join(dir, "signature-1"), b.Bytes(), 0o600))
		}
		if err := pullSigned(t, ref, requirement); (err == nil) != tt.ok || err != nil &&
			api.ErrorCode(err) != api.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSigstore is TestSignedBy for cosign's signatures, which lie in the registry.
func TestSigstore(t *testing.T) {
	registry := it.StartRegistry(t)
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		return k
	}
	ours, theirs := key(), key()
	der, err := x509.MarshalPKIXPublicKey(&ours.PublicKey)
	must(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	requirement := `{"type":"sigstoreSigned","keyData":"` + base64.StdEncoding.EncodeToString(public) +
		`","signedIdentity":{"type":"matchRepository"}}`
	signatures(t, registry, "use-sigstore-attachments: true")
	for name, tt := range map[string]struct {
		by  *ecdsa.PrivateKey
		ref string // that the signature names, when not the image's
		ok  bool
	}{
		"signed": {by: ours, ok: true}, "unsigned": {}, "another-key": {by: theirs},
		"another-name": {by: ours, ref: it.Ref(registry, "other", "v1")},
	} {
		digest, err := it.Push(registry, name, "v1", twoLayers())
		must(t, err)
		ref := it.Ref(registry, name, "v1")
		if tt.by != nil {
			signs := ref
			if tt.ref != "" {
				signs = tt.ref
			}
			text := signedText(t, "cosign container image signature", signs, digest)
			sum := sha256.Sum256(text)
			signature, err := ecdsa.SignASN1(rand.Reader, tt.by, sum[:])
			must(t, err)
			attach(t, registry, name, digest, text, signature)
		}
		if err := pullSigned(t, ref, requirement); (err == nil) != tt.ok || err != nil &&
			api.ErrorCode(err) != api.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// attach pushes a signature as cosign does: an image whose layer is the text that is signed.
func attach(t *testing.T, registry, name, digest string, text, signature []byte) {
	t.Helper()
	config := it.NewBlob("application/vnd.oci.image.config.v1+json",
		[]byte(`{"rootfs":{"type":"layers","diff_ids":[]}}`))
	layer := it.NewBlob("application/vnd.dev.cosign.simplesigning.v1+json", text)
	for _, b := range []it.Blob{config, layer} {
		must(t, it.PushBlob(registry, name, b))
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"size":%d,"digest":%q},"layers":[{"mediaType":%q,"size":%d,"digest":%q,"annotations":{"dev.cosignproject.cosign/signature":%q}}]}`,
		kind, config.MediaType, len(config.Data), config.Digest, layer.MediaType, len(layer.Data), layer.Digest,
		base64.StdEncoding.EncodeToString(signature))
	must(t, it.PushManifest(registry, name, strings.Replace(digest, ":", "-", 1)+".sig",
		it.NewBlob(kind, []byte(manifest))))
}
