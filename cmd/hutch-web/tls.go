package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/webapi"
)

// certificates is where the server's come from: nil where it speaks HTTP.
type certificates func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// config is that of a listener. HTTP/2 is spoken with who wants it.
func (c certificates) config() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c}
}

// ofFiles are the user's, read again when they are others.
func ofFiles(cert, key string, report func(error)) (certificates, error) {
	pair, err := newFresh(func() (*tls.Certificate, error) {
		certText, err := os.ReadFile(cert)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		keyText, err := readSecret(key)
		if err != nil {
			return nil, fmt.Errorf("--tls-key: %w", err)
		}
		pair, err := tls.X509KeyPair(certText, keyText)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", cert, key, err)
		}
		return &pair, nil
	}, report, cert, key)
	if err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get(), nil }, nil
}

// authority signs certificates for this server's names, for as long as it runs. Its key is never in a file.
type authority struct {
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	leaf  *ecdsa.PrivateKey
	names []string // that it signs, and all below them
	ips   []net.IP
}

// lifetime is how long an authority may be believed. A server that runs longer has to be started anew.
const lifetime = 825 * 24 * time.Hour

func newAuthority(cfg *webapi.Config, at net.Addr) (*authority, error) {
	a := &authority{names: append([]string{"localhost"}, cfg.Hosts...),
		ips: []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback}}
	if cfg.E2BDomain != "" {
		a.names = append(a.names, cfg.E2BDomain)
	}
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		ip := tcp.IP
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		a.ips = append(a.ips, ip)
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if a.leaf, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	template := template("hutch web, this run")
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	template.PermittedDNSDomains, template.PermittedDNSDomainsCritical = a.names, true // and it signs nothing else
	for _, ip := range a.ips {
		one := &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))}
		template.PermittedIPRanges = append(template.PermittedIPRanges, one)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

func template(name string) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	now := time.Now()
	return &x509.Certificate{SerialNumber: new(big.Int).SetBytes(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime)}
}

// certificate signs one for the name that a client wants, if it is one of the server's or below it: not every program
// takes *.localhost for a name.
func (a *authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	leaf := template("hutch web")
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.DNSNames, leaf.IPAddresses = append([]string(nil), a.names...), a.ips
	for _, name := range a.names {
		if strings.HasSuffix(strings.ToLower(hello.ServerName), "."+name) {
			leaf.DNSNames = append(leaf.DNSNames, hello.ServerName)
			break
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf}, nil
}

// publish leaves the certificate of the authority for clients. say tells where, and how it is known.
func (a *authority) publish(dir string, l net.Listener) (say func(), forget func() error, err error) {
	path := filepath.Join(dir, "web-"+fileName(l)+".crt")
	if err := writeNew(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})); err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(a.cert.Raw)
	return func() {
		fmt.Fprintf(os.Stderr, "hutch-web: its certificates are signed by that in %s, SHA-256 %s\n", path,
			hex.EncodeToString(sum[:]))
	}, remover(path), nil
}

// certificatesFor are those that the flags ask for.
func certificatesFor(cfg *webapi.Config, dir string, l net.Listener, report func(error)) (c certificates, say func(),
	forget func() error, err error) {
	say, forget = func() {}, func() error { return nil }
	switch {
	case cfg.TLSCert != "":
		c, err = ofFiles(cfg.TLSCert, cfg.TLSKey, report)
	case cfg.TLS:
		var a *authority
		if a, err = newAuthority(cfg, l.Addr()); err == nil {
			c = a.certificate
			say, forget, err = a.publish(dir, l)
		}
	}
	return c, say, forget, err
}
