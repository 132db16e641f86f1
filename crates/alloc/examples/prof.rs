use perdure_alloc::*;
fn main(){
 let g=Geometry { first_block: BlockNumber::new(512), blocks_per_segment: 4096, segments: 128, groups:2 };
 let a=Allocator::new(g, Options{policy:Policy::Steered,seed:1,reserve_blocks:4096}, Box::new(NoLedger));
 let total=g.blocks(); let mut live=vec![]; let mut c=12345u64;
 while total - a.free_blocks() < total*7/10 { live.push(a.allocate_one(DomainId(2),Purpose::Ordinary,0).unwrap()); }
 while total - a.free_blocks() > total*50/100 { c = c.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407); let b=live.swap_remove((c>>33) as usize%live.len()); a.free(Extent{start:b,blocks:1}).unwrap(); }
 let t=std::time::Instant::now();
 for _ in 0..std::env::args().nth(1).unwrap().parse::<u32>().unwrap() { let b=a.allocate_one(DomainId(2),Purpose::Ordinary,0).unwrap(); a.free(Extent{start:b,blocks:1}).unwrap(); }
 println!("{:?}",t.elapsed()/std::env::args().nth(1).unwrap().parse::<u32>().unwrap());
}
