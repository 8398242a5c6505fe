// Package registry knows what images are called and where they come from: references and their aliases, the
// configuration that podman and skopeo share (containers-registries.conf(5) and its sisters), logins and credential
// helpers, the signature policy, and what the answers of a registry mean.
package registry
